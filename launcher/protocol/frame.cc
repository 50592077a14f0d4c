#include "launcher/protocol/frame.h"

#include <string.h>

#include <string>

namespace hvd::launcher {
namespace {

bool is_known(std::uint8_t type) {
  return (type >= static_cast<std::uint8_t>(FrameType::kLaunch) &&
          type <= static_cast<std::uint8_t>(FrameType::kInput)) ||
         (type >= static_cast<std::uint8_t>(FrameType::kHello) && type <= static_cast<std::uint8_t>(FrameType::kInputTaken));
}

Status check_header(std::uint32_t size, std::uint8_t version, std::uint8_t type, std::uint16_t zero) {
  if (version != kAgentProtocolVersion) {
    return Status::precondition("frame of protocol version " + std::to_string(version) + ", this program speaks " +
                                std::to_string(kAgentProtocolVersion));
  }
  if (!is_known(type) || zero != 0) {
    return Status::invalid_argument("malformed frame header (type " + std::to_string(type) + ")");
  }
  const std::size_t limit =
      type == static_cast<std::uint8_t>(FrameType::kLaunch) ? kMaxLaunchBytes : kMaxOtherBytes;
  if (size > limit) {
    return Status::invalid_argument("frame of type " + std::to_string(type) + " has " + std::to_string(size) +
                                    " bytes, the limit is " + std::to_string(limit));
  }
  return Status::ok();
}

}  // namespace

Bytes encode_frame(FrameType type, std::uint32_t agent, ByteSpan payload) {
  ByteWriter out;
  out.put(static_cast<std::uint32_t>(payload.size()));
  out.put(kAgentProtocolVersion);
  out.put(static_cast<std::uint8_t>(type));
  out.put(std::uint16_t{0});
  out.put(agent);
  out.put_raw(payload);
  return out.take();
}

Result<std::optional<Frame>> FrameDecoder::next() {
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
  if (rest.size() < kFrameHeaderBytes + size) return std::optional<Frame>();
  const ByteSpan payload = rest.subspan(kFrameHeaderBytes, size);
  Frame frame{static_cast<FrameType>(type), agent, Bytes(payload.begin(), payload.end())};
  explicit_bzero(buffer_.data() + at_, kFrameHeaderBytes + size);
  at_ += kFrameHeaderBytes + size;
  if (at_ == buffer_.size() || at_ > kMaxOtherBytes) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ = 0;
  }
  return std::optional<Frame>(std::move(frame));
}

}  // namespace hvd::launcher
