#include "runtime/collectives/shm/hand_over_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace hvd::collectives {
namespace {

constexpr std::size_t kMaxReason = 512;

struct DescriptorMessage {
  explicit DescriptorMessage(void* data, std::size_t size) : bytes{data, size} {
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  iovec bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
};

}  // namespace

Status HandOverStream::send_outcome(const std::string& why_not, const Deadline& deadline) const {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(why_not.empty() ? 1 : 0));
  if (!why_not.empty()) out.put_string(why_not.substr(0, kMaxReason));
  return send(out.bytes(), deadline);
}

Result<std::string> HandOverStream::receive_outcome(const Deadline& deadline) const {
  std::array<std::uint8_t, 1> outcome{};
  HVD_RETURN_IF_ERROR(receive(outcome, deadline));
  if (outcome[0] == 1) return std::string();
  std::array<std::uint8_t, 4> length{};
  HVD_RETURN_IF_ERROR(receive(length, deadline));
  Bytes text(std::min<std::size_t>(ByteReader(length).get<std::uint32_t>(), kMaxReason));
  HVD_RETURN_IF_ERROR(receive(text, deadline));
  return text.empty() ? std::string("without a reason") : std::string(as_text(text));
}

Status HandOverStream::send_descriptor(ByteSpan bytes, int descriptor) const {
  DescriptorMessage message(const_cast<std::uint8_t*>(bytes.data()), bytes.size());  // only read
  cmsghdr* const item = CMSG_FIRSTHDR(&message.header);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(item), &descriptor, sizeof(descriptor));
  // An empty socket buffer takes so little in one piece.
  const ssize_t sent = ::sendmsg(fd(), &message.header, MSG_NOSIGNAL);
  if (sent < 0) return socket_error("sendmsg", errno);
  return sent == static_cast<ssize_t>(bytes.size()) ? Status::ok() : Status::internal("sendmsg sent a part only");
}

Result<Fd> HandOverStream::receive_descriptor(std::span<std::uint8_t> into, const Deadline& deadline) const {
  HVD_RETURN_IF_ERROR(wait_for_socket(fd(), POLLIN, deadline, wake_fd_));
  DescriptorMessage message(into.data(), into.size());
  const ssize_t size = ::recvmsg(fd(), &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size < 0) return socket_error("recvmsg", errno);
  if (size == 0) return Status::peer_lost("connection closed by the other end");
  Fd received;
  const cmsghdr* const item = CMSG_FIRSTHDR(&message.header);
  if (item != nullptr && item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(item), sizeof(descriptor));
    received = Fd(descriptor);
  }
  HVD_RETURN_IF_ERROR(receive(into.subspan(static_cast<std::size_t>(size)), deadline));
  if (!received.valid()) return Status::internal("no descriptor came with the leader's answer");
  return received;
}

}  // namespace hvd::collectives
