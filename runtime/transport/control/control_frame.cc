#include "runtime/transport/control/control_frame.h"

#include "runtime/transport/net/frame_check.h"

namespace hvd::transport {

Bytes encode_control_frame(ControlFrameType type, ByteSpan payload) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(type));
  out.put_raw(Bytes(3));
  out.put(static_cast<std::uint32_t>(payload.size()));
  out.put(check_of(payload));
  out.put_raw(payload);
  Bytes frame = out.take();
  put_header_check(std::span(frame).first(kControlHeaderSize));
  return frame;
}

Status ControlFrameReader::feed(ByteSpan input, const std::function<bool(const ControlFrame&)>& sink) {
  buffer_.insert(buffer_.end(), input.begin(), input.end());
  std::size_t at = 0;
  bool more = true;
  while (more) HVD_RETURN_IF_ERROR(next(at, sink, more));
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(at));
  return Status::ok();
}

Status ControlFrameReader::next(std::size_t& at, const std::function<bool(const ControlFrame&)>& sink, bool& more) {
  more = false;
  if (buffer_.size() - at < kControlHeaderSize) return Status::ok();
  const ByteSpan header = ByteSpan(buffer_).subspan(at, kControlHeaderSize);
  HVD_RETURN_IF_ERROR(verify_header(header));
  ByteReader in(header);
  const auto type = in.get<std::uint8_t>();
  in.take(3);
  const auto length = in.get<std::uint32_t>();
  const auto check = in.get<std::uint32_t>();
  const bool known = type == static_cast<std::uint8_t>(ControlFrameType::kMessage) ||
                     type == static_cast<std::uint8_t>(ControlFrameType::kGoodbye);
  if (!known) {
    return Status::precondition("a control frame has the unknown type " + std::to_string(type));
  }
  if (length > max_message_) {
    return Status::precondition("a control frame of " + std::to_string(length) + " bytes exceeds the limit of " +
                                std::to_string(max_message_));
  }
  if (buffer_.size() - at - kControlHeaderSize < length) return Status::ok();
  const ControlFrame frame{static_cast<ControlFrameType>(type),
                           ByteSpan(buffer_).subspan(at + kControlHeaderSize, length)};
  if (check_of(frame.payload) != check) return changed_on_the_way("a control message");
  at += kControlHeaderSize + length;
  more = sink(frame);
  return Status::ok();
}

}  // namespace hvd::transport
