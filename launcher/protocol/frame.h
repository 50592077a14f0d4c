#pragma once

#include <cstdint>
#include <optional>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/base/wipe.h"

namespace hvd::launcher {

inline constexpr std::uint8_t kAgentProtocolVersion = 5;

// What travels between the launcher and its agents: the launcher's frames on an agent's stdin, the agent's on its
// stdout. docs/design/launcher.md has the grammar. On the wire: u32 payload size, u8 version, u8 type, u16 zero, u32
// agent, the payload, and a newline: what passes output on by lines, as srun does, holds nothing back.
enum class FrameType : std::uint8_t {
  // launcher -> agent
  kLaunch = 1,
  kSignal = 2,
  kShutdown = 3,
  kInput = 4,
  kStart = 5,
  kStop = 6,
  kAskStacks = 7,
  kOpenBelow = 8,     // to an agent that is to start another
  kCloseBelow = 9,    // of the agent that the frame names: it is not needed any more
  kLaunchBelow = 10,  // for the agent that the frame names
  // agent -> launcher
  kHello = 64,
  kStarted = 65,
  kNotStarted = 66,
  kOutput = 67,
  kOutputEnd = 68,
  kEnded = 69,
  kNotice = 70,
  kError = 71,
  kDone = 72,
  kFailing = 73,
  kInputTaken = 74,
  kStacks = 76,
  kStacksEnd = 77,
  kDraining = 78,
  kStopped = 79,
  kLost = 80,  // of an agent that the sender has started: no more frames will come from it
  kStalled = 81,
  kWorked = 82,
  kAlive = 75,  // nothing has happened: something to acknowledge
};

inline constexpr std::size_t kFrameHeaderBytes = 12;
inline constexpr std::uint8_t kFrameEnd = '\n';
inline constexpr std::size_t kMaxLaunchBytes =
    std::size_t{16} * 1024 * 1024;  // the environment and the command are in it
inline constexpr std::size_t kMaxOtherBytes = std::size_t{256} * 1024;

// In place of a number, of who has not been told its own yet.
inline constexpr std::uint32_t kOwnAgent = 0xffffffff;

struct Frame {
  FrameType type = FrameType::kError;
  std::uint32_t agent = kOwnAgent;  // where it goes to, or comes from: an agent passes on what is another's
  Bytes payload;
};

Bytes encode_frame(FrameType type, std::uint32_t agent, ByteSpan payload);

// Cuts a stream of bytes into frames. A wrong version, an unknown type or a size over the type's limit is an error, and
// every later call returns it: there is no way to find the next frame. Bytes that have been handed out, or moved, are
// erased where they were. Externally synchronised.
class FrameDecoder {
 public:
  void feed(ByteSpan bytes);
  // The next complete frame; nullopt when more bytes are needed.
  Result<std::optional<Frame>> next();
  // True when the stream may end here.
  bool at_boundary() const { return at_ == buffer_.size(); }

 private:
  void move_to(std::size_t capacity);

  WipedBytes buffer_;
  std::size_t at_ = 0;
  Status error_;
};

}  // namespace hvd::launcher
