#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

// The payloads of the frames, each with encode and decode. What decode accepts is bounded and checked; it says what is
// wrong otherwise.
namespace hvd::launcher {

inline constexpr std::size_t kMaxEnvironment = 65536;  // variables
inline constexpr std::size_t kMaxCommandWords = 131072;
inline constexpr std::size_t kMaxRanksPerAgent = 4096;
inline constexpr std::size_t kMaxAddresses = 64;
inline constexpr std::size_t kMaxOutputChunk = std::size_t{64} * 1024;
inline constexpr std::size_t kMaxInputChunk = std::size_t{64} * 1024;
inline constexpr std::size_t kMaxText = std::size_t{64} * 1024;

// Everything an agent needs to start its ranks.
struct LaunchMessage {
  crypto::Secret secret;
  std::string hostname;  // HOROVOD_HOSTNAME
  std::string cwd;       // ranks start here, where it exists
  std::vector<std::pair<std::string, std::string>> env;
  std::vector<std::string> command;
  std::vector<RankSlot> ranks;
  std::uint16_t rendezvous_port = 0;
  std::vector<std::string> rendezvous_addresses;  // numeric; the agent takes the first that it can reach
  std::uint64_t ignored_signals = 0;              // bits (1 << number): the ranks ignore them from the start
  std::vector<std::int32_t> input_ranks = {};     // those that get the launcher's stdin; the others' is /dev/null
};

struct SignalMessage {
  // To the process groups of all ranks of the agent; SIGKILL also to what left them; SIGUSR1 and SIGUSR2, which are
  // words to the program and not to its helpers, to the ranks alone.
  std::int32_t signal = 0;
};

// For a rank's stdin; without bytes: its end.
struct InputMessage {
  std::int32_t rank = -1;
  Bytes bytes;
};

// So many bytes of input more are off the agent's hands: that much more may be sent.
struct InputTakenMessage {
  std::int32_t rank = -1;
  std::uint32_t size = 0;
};

// The launcher wants no more of this agent: what the ranks left behind is ended, then the agent ends.
struct ShutdownMessage {
  bool at_once = false;  // the job has failed: no time for left-over processes to end by themselves
};

struct HelloMessage {
  std::string version;  // of the product
  std::string node;     // uname's node name
  std::int32_t pid = 0;
};

struct RankStartedMessage {
  std::int32_t rank = -1;
  std::int32_t pid = 0;
};

struct RankNotStartedMessage {
  std::int32_t rank = -1;
  std::int32_t code = 0;  // as a shell has it: 127 not found, 126 cannot be executed
  std::string reason;
};

struct OutputMessage {
  std::int32_t rank = -1;
  bool is_stderr = false;
  Bytes bytes;
};

struct OutputEndMessage {
  std::int32_t rank = -1;
  bool is_stderr = false;
};

struct RankExitedMessage {
  std::int32_t rank = -1;
  std::int32_t code = 0;
  std::int32_t signal = 0;
};

// The rank goes down by its own fault, or leaves the job, which is a fault if it exits with an error. Its exit follows;
// those of ranks that failed because of it may come before.
struct RankFailingMessage {
  std::int32_t rank = -1;
  bool is_leaving = false;
};

// kNotice and kError.
struct TextMessage {
  std::string text;
};

Bytes encode(const LaunchMessage& message);
Bytes encode(const SignalMessage& message);
Bytes encode(const ShutdownMessage& message);
Bytes encode(const InputMessage& message);
Bytes encode(const InputTakenMessage& message);
Bytes encode(const HelloMessage& message);
Bytes encode(const RankStartedMessage& message);
Bytes encode(const RankNotStartedMessage& message);
Bytes encode(const OutputMessage& message);
Bytes encode(const OutputEndMessage& message);
Bytes encode(const RankExitedMessage& message);
Bytes encode(const RankFailingMessage& message);
Bytes encode(const TextMessage& message);

Result<LaunchMessage> decode_launch(ByteSpan payload);
Result<SignalMessage> decode_signal(ByteSpan payload);
Result<ShutdownMessage> decode_shutdown(ByteSpan payload);
Result<InputMessage> decode_input(ByteSpan payload);
Result<InputTakenMessage> decode_input_taken(ByteSpan payload);
Result<HelloMessage> decode_hello(ByteSpan payload);
Result<RankStartedMessage> decode_rank_started(ByteSpan payload);
Result<RankNotStartedMessage> decode_rank_not_started(ByteSpan payload);
Result<OutputMessage> decode_output(ByteSpan payload);
Result<OutputEndMessage> decode_output_end(ByteSpan payload);
Result<RankExitedMessage> decode_rank_exited(ByteSpan payload);
Result<RankFailingMessage> decode_rank_failing(ByteSpan payload);
Result<TextMessage> decode_text(ByteSpan payload);

}  // namespace hvd::launcher
