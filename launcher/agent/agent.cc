#include "launcher/agent/agent.h"

#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/agent/sweeper.h"
#include "launcher/protocol/cookie.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/wipe.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {
namespace {

constexpr Millis kLeftoverGrace{1000};  // after a normal end, for what ranks left behind (a resource tracker, say)

std::string node_name() {
  utsname names = {};
  return ::uname(&names) == 0 ? names.nodename : "";
}

}  // namespace

Agent::Agent(MainLoop& loop, Fd from_launcher, Fd to_launcher)
    : loop_(loop),
      slots_(loop, static_cast<ProcessEvents&>(*this)),
      relay_(loop, {.send =
                        [this](int agent, FrameType type, const Bytes& payload) {
                          send_frame_of(static_cast<std::uint32_t>(agent), type, payload);
                          apply_backpressure();
                        },
                    .on_gone =
                        [this] {
                          if (swept_) finish_when_drained();
                        }}),
      sweeper_(
          loop, [this] { swept(); }, [this] { return starters_in_use(); }),
      drain_deadline_(loop.get(),
                      [this] {
                        slots_.close_output();
                        finish_when_drained();
                      }),
      grace_(loop.get(), [this] { lease_lost(); }),
      parent_(::getppid()),
      signals_(loop, {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}, [this](int signal) {
        if (signal == SIGCHLD)
          child_ended();
        else
          told_to_end(signal);
      }) {
  auto output = PipeWriter::open(loop, std::move(to_launcher),
                                 {.on_progress =
                                      [this] {
                                        apply_backpressure();
                                        stop_when_written();
                                      },
                                  .on_error = [this](const Status&) { lease_lost(); }});
  auto input =
      PipeReader::open(loop, std::move(from_launcher),
                       {.on_data = [this](ByteSpan bytes) { received(bytes); }, .on_end = [this] { lease_lost(); }},
                       true);  // the secret comes here
  if (output.is_ok() && input.is_ok()) {
    output_ = std::move(output).value();
    input_ = std::move(input).value();
  }
}

int Agent::run(const std::string& cookie) {
  if (!input_ || !output_) return 1;
  const std::string hello = hello_line(cookie);
  output_->write(Bytes(hello.begin(), hello.end()));
  send(FrameType::kHello, HelloMessage{.version = HVD_VERSION, .node = node_name(), .pid = ::getpid()});
  loop_.run();
  return leased_ ? 0 : 1;
}

void Agent::received(ByteSpan bytes) {
  decoder_.feed(bytes);
  for (;;) {
    auto next = decoder_.next();
    Status status = next.status();
    if (status.is_ok() && !next.value().has_value()) return;
    if (status.is_ok()) {
      Frame frame = std::move(*std::move(next).value());
      status = handle(frame);
      wipe(frame.payload);
    }
    if (!status.is_ok()) return fail(status);
  }
}

Status Agent::handle(const Frame& frame) {
  HVD_FAILPOINT_RETURN("agent.frame");
  if (id_ == kOwnAgent) id_ = frame.agent;
  if (frame.agent != id_) return relay_.pass(frame);
  switch (frame.type) {
    case FrameType::kLaunch: {
      HVD_ASSIGN_OR_RETURN(LaunchMessage message, decode_launch(frame.payload));
      return launch(std::move(message));
    }
    case FrameType::kStart: {
      HVD_ASSIGN_OR_RETURN(auto message, decode<StartMessage>(frame.payload));
      return start(std::move(message));
    }
    case FrameType::kSignal: {
      HVD_ASSIGN_OR_RETURN(const auto message, decode<SignalMessage>(frame.payload));
      signal(message);
      return Status::ok();
    }
    case FrameType::kStop: {
      HVD_ASSIGN_OR_RETURN(const auto message, decode<StopMessage>(frame.payload));
      slots_.stop(message.slot, Millis(message.grace_ms));
      return Status::ok();
    }
    case FrameType::kInput: {
      HVD_ASSIGN_OR_RETURN(auto message, decode<InputMessage>(frame.payload));
      return give_input(std::move(message));
    }
    case FrameType::kShutdown: {
      HVD_ASSIGN_OR_RETURN(const auto message, decode<ShutdownMessage>(frame.payload));
      shut_down(message);
      return Status::ok();
    }
    case FrameType::kAskStacks: ask_stacks(); return Status::ok();
    case FrameType::kOpenBelow: {
      HVD_ASSIGN_OR_RETURN(const auto message, decode<OpenBelowMessage>(frame.payload));
      return open_below(message);
    }
    default:
      return Status::invalid_argument("an agent got a frame of type " + std::to_string(static_cast<int>(frame.type)));
  }
}

Status Agent::open_below(const OpenBelowMessage& message) {
  if (!leased_ || sweeper_.active()) return Status::ok();
  return relay_.open(message);
}

Status Agent::start(StartMessage message) {
  if (!launch_) return Status::precondition("an agent got a start frame before the launch frame");
  if (!leased_ || sweeper_.active()) return Status::ok();  // it would be ended with the rest
  killed_ = false;
  return slots_.start(std::move(message));
}

void Agent::signal(const SignalMessage& message) {
  slots_.signal(message.slot, message.signal);
  if (message.signal != SIGKILL || message.slot != SignalMessage::kAllSlots) return;
  killed_ = true;
  for (int pid : descendants_of(::getpid(), starters_in_use())) ::kill(pid, SIGKILL);
}

void Agent::shut_down(const ShutdownMessage& message) {
  // After SIGKILL nothing deserves a grace: what was forked during the kill has only escaped it.
  if (killed_) return sweeper_.kill_now();
  sweeper_.start(message.at_once ? Millis(0) : kLeftoverGrace);
}

void Agent::ask_stacks() {
  if (stacks_ && !stacks_->done()) return;  // the launcher gets the answer that is under way
  stacks_ = std::make_unique<StackDump>(
      loop_, slots_.running_processes(),
      [this](Incarnation process, std::string text) {
        send(FrameType::kStacks, StacksMessage{process, std::move(text)});
      },
      [this] { send_frame(FrameType::kStacksEnd, {}); });
}

Status Agent::give_input(InputMessage message) {
  const auto [slot, number] = message.process;
  if (slots_.give_input(message.process, std::move(message.bytes))) return Status::ok();
  return Status::invalid_argument("an agent got input for slot " + std::to_string(slot) + ", incarnation " +
                                  std::to_string(number) + ", which it has not started");
}

void Agent::send_frame_of(std::uint32_t agent, FrameType type, const Bytes& payload) {
  HVD_FAILPOINT("agent.send");
  if (leased_) output_->write(encode_frame(type, agent, payload));
}

void Agent::process_started(Incarnation process, int pid) { send(FrameType::kStarted, StartedMessage{process, pid}); }

void Agent::process_not_started(Incarnation process, int code, std::string reason) {
  send(FrameType::kNotStarted, NotStartedMessage{process, code, std::move(reason)});
}

void Agent::process_output(Incarnation process, OutputStream stream, ByteSpan bytes) {
  send(FrameType::kOutput, OutputMessage{process, stream, Bytes(bytes.begin(), bytes.end())});
  apply_backpressure();
}

void Agent::process_output_end(Incarnation process, OutputStream stream) {
  send(FrameType::kOutputEnd, OutputEndMessage{process, stream});
  if (swept_) finish_when_drained();
}

void Agent::process_failing(Incarnation process, bool is_leaving) {
  send(FrameType::kFailing, FailingMessage{process, is_leaving});
}

void Agent::process_stalled(Incarnation process, std::int32_t rank) {
  send(FrameType::kStalled, StalledMessage{process, rank});
}

void Agent::process_worked(Incarnation process, const rendezvous::RankWork& work) {
  send(FrameType::kWorked, WorkedMessage{process, work});
}

bool Agent::process_draining(Incarnation process) {
  if (!may_drain()) return false;
  send(FrameType::kDraining, DrainingMessage{process.slot});
  return true;
}

void Agent::process_stopped(Incarnation process, bool is_stopped) {
  send(FrameType::kStopped, StoppedMessage{process, is_stopped});
}

void Agent::process_ended(Incarnation process, ExitStatus status) {
  HVD_FAILPOINT("agent.ended");
  std::uint64_t kills = 0;
  if (!status.ok()) kills = std::max(memory_kills_of_this_host().count, kills_before_.count) - kills_before_.count;
  send(FrameType::kEnded,
       EndedMessage{process, status.code, status.signal, static_cast<std::uint32_t>(kills), kills_before_.of_group});
}

void Agent::process_took_input(Incarnation process, std::size_t size) {
  send(FrameType::kInputTaken, InputTakenMessage{process, static_cast<std::uint32_t>(size)});
}

void Agent::apply_backpressure() {
  const bool full = leased_ && output_->queued() > kHighWater;
  if (full == paused_) return;
  paused_ = full;
  slots_.pause_output(full);
  relay_.pause(full);
}

}  // namespace hvd::launcher
