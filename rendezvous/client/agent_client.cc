#include "rendezvous/client/agent_client.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "rendezvous/client/connect.h"
#include "runtime/base/bytes.h"
#include "runtime/base/socket_io.h"

namespace hvd::rendezvous {
namespace {

// A buffer that held a secret and is wiped when it goes.
template <std::size_t N>
struct WipedBuffer {
  std::array<std::uint8_t, N> bytes{};
  ~WipedBuffer() { explicit_bzero(bytes.data(), bytes.size()); }
};

Result<crypto::Secret> ask(const Fd& fd, const Deadline& deadline) {
  std::string request(kAgentMagic);
  request.push_back(static_cast<char>(kAgentRequestSecret));
  HVD_RETURN_IF_ERROR(send_all(fd.get(), as_bytes(request), deadline, -1));

  WipedBuffer<kAgentAnswerBytes> answer;
  std::size_t received = 0;
  while (received < answer.bytes.size()) {
    const auto rest = std::span(answer.bytes).subspan(received);
    HVD_ASSIGN_OR_RETURN(const std::size_t size, receive_some(fd.get(), rest, deadline, -1));
    received += size;
  }
  const ByteSpan bytes = answer.bytes;
  if (as_text(bytes.first(kAgentMagic.size())) != kAgentMagic) return Status::internal("what answers is not an agent");
  if (bytes[kAgentMagic.size()] != kAgentAnswerOk) {
    return Status::internal("the agent refuses, outcome " + std::to_string(bytes[kAgentMagic.size()]));
  }
  return crypto::Secret::from_bytes(bytes.last(crypto::kSecretSize));
}

Status check_secret_file(const Fd& fd) {
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return Status::from_errno("fstat", errno);
  if (!S_ISREG(info.st_mode)) return Status::invalid_argument("not a regular file");
  if (info.st_uid != geteuid()) {
    return Status::invalid_argument("belongs to uid " + std::to_string(info.st_uid) + ", expected the own uid " +
                                    std::to_string(geteuid()));
  }
  if ((info.st_mode & 077) != 0) {
    std::array<char, 8> mode{};
    std::snprintf(mode.data(), mode.size(), "%04o", info.st_mode & 07777);
    return Status::invalid_argument("has mode " + std::string(mode.data()) +
                                    ", expected no permission for group and others (chmod 600)");
  }
  return Status::ok();
}

Result<crypto::Secret> parse_secret(ByteSpan text) {
  constexpr std::size_t kDigits = 2 * crypto::kSecretSize;
  if (text.size() == kDigits + 1 && text.back() == '\n') text = text.first(kDigits);
  WipedBuffer<crypto::kSecretSize> secret;
  bool good = text.size() == kDigits;
  for (std::size_t i = 0; good && i < kDigits; ++i) {
    const char c = static_cast<char>(text[i]);
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    good = digit >= 0;
    secret.bytes[i / 2] = static_cast<std::uint8_t>(secret.bytes[i / 2] * 16 + digit);
  }
  if (!good) return Status::invalid_argument("holds something other than 64 hex digits and at most one newline");
  return crypto::Secret::from_bytes(secret.bytes);
}

Result<crypto::Secret> read_secret(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer. O_NOFOLLOW: nobody may point us at
  // another file.
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid() && errno == ELOOP) return Status::invalid_argument("a symbolic link, expected a regular file");
  if (!fd.valid()) return Status::invalid_argument(strerrordesc_np(errno));
  HVD_RETURN_IF_ERROR(check_secret_file(fd));
  WipedBuffer<2 * crypto::kSecretSize + 2> text;  // one more than what is legal, to notice what is too long
  std::size_t size = 0;
  while (size < text.bytes.size()) {
    const ssize_t got = read(fd.get(), text.bytes.data() + size, text.bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno("read", errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return parse_secret(ByteSpan(text.bytes.data(), size));
}

}  // namespace

Result<crypto::Secret> fetch_secret_from_agent(const std::string& agent_name, Deadline deadline) {
  const std::string context = "job secret from agent \"" + agent_name + "\"";
  if (!is_agent_socket_name(agent_name)) {
    return Status::invalid_argument("HOROVOD_AGENT is \"" + agent_name + "\", expected " +
                                    std::string(kAgentSocketPrefix) + " and " +
                                    std::to_string(2 * kAgentSocketRandomBytes) + " hex digits");
  }
  auto fd = connect_abstract(agent_name, deadline, -1);
  if (!fd.is_ok()) return fd.status().annotate(context);
  auto secret = ask(fd.value(), deadline);
  if (!secret.is_ok()) return secret.status().annotate(context);
  return secret;
}

Result<crypto::Secret> read_secret_file(const std::string& path) {
  auto secret = read_secret(path);
  if (!secret.is_ok()) return secret.status().annotate("HOROVOD_SECRET_FILE " + path);
  return secret;
}

Status notify_agent(const std::string& agent_name, int rank, AgentNotice kind, Deadline deadline) {
  if (!is_agent_socket_name(agent_name)) {
    return Status::invalid_argument("HOROVOD_AGENT is \"" + agent_name + "\", which is no agent's name");
  }
  HVD_ASSIGN_OR_RETURN(const Fd fd, connect_abstract(agent_name, deadline, -1));
  ByteWriter notice;
  notice.put_raw(as_bytes(kAgentMagic));
  notice.put(static_cast<std::uint8_t>(kind));
  notice.put(static_cast<std::int32_t>(rank));
  HVD_RETURN_IF_ERROR(send_all(fd.get(), notice.take(), deadline, -1));
  std::array<std::uint8_t, kAgentRequestBytes> answer{};
  std::size_t received = 0;
  while (received < answer.size()) {
    HVD_ASSIGN_OR_RETURN(const std::size_t size,
                         receive_some(fd.get(), std::span(answer).subspan(received), deadline, -1));
    received += size;
  }
  return Status::ok();
}

}  // namespace hvd::rendezvous
