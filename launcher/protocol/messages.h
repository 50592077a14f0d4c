#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "launcher/binding/binding.h"
#include "rendezvous/protocol/agent_socket.h"
#include "rendezvous/protocol/seat.h"
#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

// The payloads of the frames, each with encode and decode. What decode accepts is bounded and checked; it says what is
// wrong otherwise.
namespace hvd::launcher {

inline constexpr std::size_t kMaxEnvironment = 65536;  // variables
inline constexpr std::size_t kMaxCommandWords = 131072;
inline constexpr std::uint32_t kMaxSlotsPerAgent = 4096;
inline constexpr std::size_t kMaxAddresses = 64;
inline constexpr std::size_t kMaxStarterWords = 1024;
inline constexpr std::size_t kMaxOutputChunk = std::size_t{64} * 1024;
inline constexpr std::size_t kMaxInputChunk = std::size_t{64} * 1024;
inline constexpr std::size_t kMaxText = std::size_t{64} * 1024;

// Every message about a process names its slot and which incarnation of it is meant, so that one about a process that
// has made way for the next is recognised as such. Which rank a process is, is the launcher's decision, and no frame
// has it.
using rendezvous::Incarnation;

using EnvironmentList = std::vector<std::pair<std::string, std::string>>;

// What all processes of an agent have in common. It starts none.
struct LaunchMessage {
  crypto::Secret secret;
  std::string cwd;  // processes start here
  EnvironmentList env;
  std::vector<std::string> command;
  std::uint16_t rendezvous_port = 0;
  std::vector<std::string> rendezvous_addresses;  // numeric; the agent takes the first that it can reach
  std::uint64_t ignored_signals = 0;              // bits (1 << number): the processes ignore them from the start
  std::uint32_t slots = 1;                        // of this agent: so many processes share its host
  bool announces_threads = false;                 // if it chooses OMP_NUM_THREADS, it says so
  std::uint32_t grace_ms = 0;                     // from SIGTERM to the end; 0: it ends at once
  BindingConfig binding = {};                     // of its processes to processors and GPUs
  bool tells_binding = false;                     // which that has come to
  bool needs_cwd = false;                         // without it nothing starts; else processes start where the agent is
};

// For an agent: the one that it is to start on another host, as it does for the launcher, and to pass frames on for.
struct OpenBelowMessage {
  std::int32_t agent = 0;
  std::string host;
  std::string agent_path;  // for messages
  std::string cookie;
  std::vector<std::string> argv;  // of what starts it
};

// The launch message of an agent that another has started: that one has the rest, which is the same for both.
struct LaunchBelowMessage {
  std::vector<std::string> rendezvous_addresses;
  std::uint32_t slots = 1;
  bool announces_threads = false;
};

// A process, and what it alone has. Requires that none runs in its slot, and that its number is the slot's highest so
// far.
struct StartMessage {
  Incarnation process;
  bool has_input = false;     // it gets input frames; else its stdin is /dev/null
  bool gives_result = false;  // its descriptor kResultFd is a pipe, whose bytes come as output of the stream kResult
  EnvironmentList env;
};

struct SignalMessage {
  static constexpr std::int32_t kAllSlots = -1;
  std::int32_t slot = kAllSlots;
  // To the process group; SIGKILL also to what left it; SIGUSR1 and SIGUSR2, which are words to the program and not to
  // its helpers, to the process alone.
  std::int32_t signal = 0;
};

// SIGTERM to the slot's process group, and after the grace SIGKILL to what is left of it.
struct StopMessage {
  std::int32_t slot = 0;
  std::uint32_t grace_ms = 0;
};

// For a process' stdin; without bytes: its end.
struct InputMessage {
  Incarnation process;
  Bytes bytes;
};

// So many bytes of input more are off the agent's hands: that much more may be sent.
struct InputTakenMessage {
  Incarnation process;
  std::uint32_t size = 0;
};

// The launcher wants no more of this agent: what the processes left behind is ended, then the agent ends.
struct ShutdownMessage {
  bool at_once = false;  // the job has failed: no time for left-over processes to end by themselves
};

struct HelloMessage {
  std::string version;  // of the product
  std::string node;     // uname's node name
  std::int32_t pid = 0;
};

struct StartedMessage {
  Incarnation process;
  std::int32_t pid = 0;
};

struct NotStartedMessage {
  Incarnation process;
  std::int32_t code = 0;  // as a shell has it: 127 not found, 126 cannot be executed
  std::string reason;
};

// What a process writes. A result is for whoever called horovod.run(), and is shown to nobody.
enum class OutputStream : std::uint8_t { kStdout = 0, kStderr = 1, kResult = 2 };
inline constexpr int kResultFd = 4;

struct OutputMessage {
  Incarnation process;
  OutputStream stream = OutputStream::kStdout;
  Bytes bytes;
};

struct OutputEndMessage {
  Incarnation process;
  OutputStream stream = OutputStream::kStdout;
};

struct EndedMessage {
  Incarnation process;
  std::int32_t code = 0;
  std::int32_t signal = 0;
  std::uint32_t memory_kills = 0;  // see ExitStatus
  bool of_group = false;
};

// The process goes down by its own fault, or leaves the job, which is a fault if it exits with an error. Its exit
// follows; those of others that failed because of it may come before.
struct FailingMessage {
  Incarnation process;
  bool is_leaving = false;
};

// The process has waited for a rank for longer than the stall check allows.
struct StalledMessage {
  Incarnation process;
  std::int32_t rank = 0;
};

// What the process did in a session that has ended; more than once where it begins another one.
struct WorkedMessage {
  Incarnation process;
  rendezvous::RankWork work;
};

// Where a process stands, in words and Python's stacks.
struct StacksMessage {
  Incarnation process;
  std::string text;
};

// Somebody has stopped the process (SIGSTOP), or let it go on.
struct StoppedMessage {
  Incarnation process;
  bool is_stopped = false;
};

// Somebody who owns the machine has told the agent to go, or a process of the slot; it will be gone after the grace.
struct DrainingMessage {
  std::int32_t slot = SignalMessage::kAllSlots;
};

// kNotice, kError and kLost.
struct TextMessage {
  std::string text;
};

Bytes encode(const LaunchMessage& message);
Result<LaunchMessage> decode_launch(ByteSpan payload);
// Of every other message above.
template <typename Message>
Bytes encode(const Message& message);
template <typename Message>
Result<Message> decode(ByteSpan payload);

}  // namespace hvd::launcher
