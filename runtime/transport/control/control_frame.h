#pragma once

#include <cstdint>
#include <functional>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"

namespace hvd::transport {

// Frames on a control connection: a header with two checks (net/frame_check.h), then `length` bytes.
// docs/design/transport.md.
enum class ControlFrameType : std::uint8_t { kMessage = 1, kGoodbye = 2 };

struct ControlFrame {
  ControlFrameType type;
  ByteSpan payload;
};

inline constexpr std::size_t kControlHeaderSize = 12;

// The header in front of the payload. Requires: payload_size fits u32.
Bytes encode_control_frame(ControlFrameType type, ByteSpan payload);

// Cuts a byte stream into frames. Pure. Grows its buffer only as bytes arrive, so a hostile length costs nothing.
class ControlFrameReader {
 public:
  explicit ControlFrameReader(std::size_t max_message) : max_message_(max_message) {}

  // Hands each complete frame to `sink`, which may return false to stop. After an error nothing more is read.
  Status feed(ByteSpan input, const std::function<bool(const ControlFrame&)>& sink);

 private:
  // The next frame in `buffer_` from `at`, or nothing when it is not complete.
  Status next(std::size_t& at, const std::function<bool(const ControlFrame&)>& sink, bool& more);

  std::size_t max_message_;
  Bytes buffer_;
};

}  // namespace hvd::transport
