#include "launcher/fleet/agent_link.h"

#include <signal.h>

#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/wipe.h"

namespace hvd::launcher {
namespace {

constexpr Millis kLastCall{1000};
constexpr std::size_t kQuotedLines = 20;

}  // namespace

AgentLink::AgentLink(MainLoop& loop, AgentLinkOptions options, AgentLinkEvents& events)
    : loop_(loop),
      options_(std::move(options)),
      events_(events),
      cookie_(options_.cookie),
      last_call_(loop.get(), [this] { maybe_lost(true); }) {}

Status AgentLink::start() {
  HVD_FAILPOINT_RETURN("link.start");
  if (options_.has_called_in) return begin_joined();
  HVD_ASSIGN_OR_RETURN(Pipe in, make_pipe());
  HVD_ASSIGN_OR_RETURN(Pipe out, make_pipe());
  HVD_ASSIGN_OR_RETURN(Pipe err, make_pipe());
  ChildOptions options;
  options.file = options_.file;
  options.argv = options_.argv;
  options.env = options_.env;
  options.stdin_fd = in.read_end.get();
  options.stdout_fd = out.write_end.get();
  options.stderr_fd = err.write_end.get();
  HVD_ASSIGN_OR_RETURN(child_, Child::spawn(loop_, options, [this](ExitStatus status) {
                         status_ = std::make_unique<ExitStatus>(status);
                         maybe_lost(false);
                       }));
  HVD_ASSIGN_OR_RETURN(input_, PipeWriter::open(loop_, std::move(in.write_end), {}));
  HVD_ASSIGN_OR_RETURN(output_, PipeReader::open(loop_, std::move(out.read_end),
                                                 {.on_data = [this](ByteSpan bytes) { received(bytes); },
                                                  .on_end = [this] { maybe_lost(false); }}));
  HVD_ASSIGN_OR_RETURN(
      errors_, PipeReader::open(loop_, std::move(err.read_end),
                                {.on_data = [this](ByteSpan bytes) { stderr_tail_.add(bytes); }, .on_end = [] {}}));
  return Status::ok();
}

Status AgentLink::begin_joined() {
  if (!options_.joined) return Status::peer_lost("it has gone");
  SealedLink& link = *options_.joined;
  if (!link.end().empty()) return Status::peer_lost(link.end());
  link.take_over({.on_proven = {},
                  .on_record = [this](ByteSpan bytes) { received(bytes); },
                  .on_end = [this](const std::string& why) { lose("lost host " + options_.host + ": " + why); },
                  .on_progress = {}});
  link.write(as_bytes(options_.cookie));
  return Status::ok();
}

void AgentLink::received(ByteSpan bytes) {
  if (lost_) return;
  if (greeted_) {
    decoder_.feed(bytes);
    return deliver();
  }
  const std::optional<Bytes> rest = cookie_.feed(bytes);
  if (!rest.has_value()) {
    if (cookie_.given_up()) lose("host " + options_.host + ": what answered there is not an agent of horovodrun");
    return;
  }
  HVD_FAILPOINT("link.greeted");
  greeted_ = true;
  decoder_.feed(*rest);
  deliver();
}

void AgentLink::deliver() {
  while (!lost_) {
    const auto next = decoder_.next();
    if (!next.is_ok()) return lose("host " + options_.host + ": " + next.status().message());
    if (!next.value().has_value()) return;
    events_.agent_frame(options_.agent, *next.value());
  }
}

void AgentLink::maybe_lost(bool at_last) {
  if (lost_) return;
  const bool complete = status_ != nullptr && output_ != nullptr && output_->ended();
  // While we do not read, the end of the output cannot be seen.
  if (!complete && (!at_last || paused_)) return last_call_.start(kLastCall);
  lose(explain_loss(), start_failed() && is_transient(ssh_failure()));
}

void AgentLink::lose(const std::string& reason, bool retry_may_help) {
  lost_ = true;
  last_call_.stop();
  drop();
  events_.agent_lost(options_.agent, reason, retry_may_help);
}

SshFailure AgentLink::ssh_failure() const {
  return {.host = options_.host,
          .program = options_.argv[0],
          .is_ssh = options_.over_ssh,
          .agent_path = options_.agent_path,
          .status = *status_,
          .stderr_lines = stderr_tail_.last_lines(kQuotedLines)};
}

std::string AgentLink::explain_loss() const {
  if (start_failed()) return explain(ssh_failure());
  const std::string who = options_.is_remote ? options_.argv[0] : "its agent";
  const std::string how = status_ ? who + " " + describe(*status_) : "its agent is gone";
  return (greeted_ ? "lost host " : "no agent on host ") + options_.host + ": " + how + quoted_stderr();
}

void AgentLink::send(FrameType type, const Bytes& payload, bool wipe, std::optional<int> to) {
  Bytes frame = encode_frame(type, static_cast<std::uint32_t>(to.value_or(options_.agent)), payload);
  if (options_.joined) {
    options_.joined->write(frame);
    if (wipe) hvd::wipe(frame);
  } else if (input_) {
    input_->write(std::move(frame), wipe);
  }
}

void AgentLink::pause(bool paused) {
  if (options_.joined) options_.joined->pause(paused);
  if (paused == paused_ || !output_) return;
  paused_ = paused;
  paused ? output_->pause() : output_->resume();
}

void AgentLink::close_lease() {
  lost_ = true;
  last_call_.stop();
  if (input_) input_->close();
  if (options_.joined) options_.joined->close();
}

void AgentLink::drop() {
  close_lease();
  if (output_) output_->close();
  if (errors_) errors_->close();
  // ssh, or what we use in its place, is of no more use. A local agent sees its lease end and cleans up in its own
  // time, also one that somebody has stopped.
  if (child_) child_->kill_group(options_.is_remote ? SIGTERM : SIGCONT);
}

std::string AgentLink::quoted_stderr() const {
  const std::vector<std::string> lines = stderr_tail_.last_lines(1);
  if (lines.empty()) return "";
  const std::string who = options_.over_ssh ? "ssh" : options_.is_remote ? options_.argv[0] : "it";
  return " (" + who + " said: " + lines.back() + ")";
}

}  // namespace hvd::launcher
