#include "launcher/protocol/frame.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

bool is_known(std::uint8_t type) {
  return (type >= static_cast<std::uint8_t>(FrameType::kLaunch) &&
          type <= static_cast<std::uint8_t>(FrameType::kLaunchBelow)) ||
         (type >= static_cast<std::uint8_t>(FrameType::kHello) &&
          type <= static_cast<std::uint8_t>(FrameType::kWorked));
}

Status check_header(std::uint32_t size, std::uint8_t version, std::uint8_t type, std::uint16_t zero) {
  if (version != kAgentProtocolVersion) {
    return Status::precondition("frame of protocol version " + std::to_string(version) + ", this program speaks " +
                                std::to_string(kAgentProtocolVersion));
  }
  if (!is_known(type) || zero != 0) {
    return Status::invalid_argument("malformed frame header (type " + std::to_string(type) + ")");
  }
  const std::size_t limit = type == static_cast<std::uint8_t>(FrameType::kLaunch) ? kMaxLaunchBytes : kMaxOtherBytes;
  if (size > limit) {
    return Status::invalid_argument("frame of type " + std::to_string(type) + " has " + std::to_string(size) +
                                    " bytes, the limit is " + std::to_string(limit));
  }
  return Status::ok();
}

}  // namespace

Bytes encode_frame(FrameType type, std::uint32_t agent, ByteSpan payload) {
  ByteWriter out;
  out.reserve(kFrameHeaderBytes + payload.size() + sizeof(kFrameEnd));
  out.put(static_cast<std::uint32_t>(payload.size()));
  out.put(kAgentProtocolVersion);
  out.put(static_cast<std::uint8_t>(type));
  out.put(std::uint16_t{0});
  out.put(agent);
  out.put_raw(payload);
  out.put(kFrameEnd);
  return out.take();
}

void FrameDecoder::feed(ByteSpan bytes) {
  const std::size_t size = buffer_.size() + bytes.size();
  if (size > buffer_.capacity()) move_to(std::max(size, 2 * buffer_.capacity()));
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

// Moves what is left to hand out to other memory.
void FrameDecoder::move_to(std::size_t capacity) {
  WipedBytes other;
  other.reserve(capacity);
  other.assign(buffer_.begin() + static_cast<std::ptrdiff_t>(at_), buffer_.end());
  buffer_ = std::move(other);
  at_ = 0;
}

Result<std::optional<Frame>> FrameDecoder::next() {
  HVD_FAILPOINT_RETURN("frame.next");
  if (!error_.is_ok()) return error_;
  ByteSpan rest = ByteSpan(buffer_).subspan(at_);
  if (rest.size() < kFrameHeaderBytes) return std::optional<Frame>();
  ByteReader header(rest.first(kFrameHeaderBytes));
  const auto size = header.get<std::uint32_t>();
  const auto version = header.get<std::uint8_t>();
  const auto type = header.get<std::uint8_t>();
  const auto zero = header.get<std::uint16_t>();
  const auto agent = header.get<std::uint32_t>();
  error_ = check_header(size, version, type, zero);
  if (!error_.is_ok()) return error_;
  const std::size_t whole = kFrameHeaderBytes + size + sizeof(kFrameEnd);
  if (rest.size() < whole) return std::optional<Frame>();
  if (rest[whole - 1] != kFrameEnd) {
    error_ = Status::invalid_argument("a frame of type " + std::to_string(type) + " does not end where it says");
    return error_;
  }
  const ByteSpan payload = rest.subspan(kFrameHeaderBytes, size);
  Frame frame{static_cast<FrameType>(type), agent, Bytes(payload.begin(), payload.end())};
  wipe(std::span(buffer_).subspan(at_, whole));
  at_ += whole;
  if (at_ == buffer_.size()) {
    buffer_.clear();
    at_ = 0;
  } else if (at_ > kMaxOtherBytes) {
    move_to(buffer_.capacity());
  }
  return std::optional<Frame>(std::move(frame));
}

}  // namespace hvd::launcher
