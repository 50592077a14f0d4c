#include "launcher/join/join_main.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "launcher/environment/environment.h"
#include "launcher/join/join_messages.h"
#include "launcher/join/sealed_link.h"
#include "launcher/process/child.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/own_process.h"
#include "launcher/process/signal_watcher.h"
#include "rendezvous/client/connect.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/socket_io.h"
#include "runtime/config/env_reader.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {
namespace {

constexpr Millis kTry{5000};       // for a connection, and again for its greeting
constexpr Millis kPause{250};      // between two tries
constexpr Millis kNotice{5000};    // without success: who waits for us is told
constexpr Millis kLastCall{2000};  // for the last output of an agent that has ended
constexpr std::size_t kHighWater = std::size_t{1} << 20;

void say(const std::string& text) { std::fprintf(stderr, "horovodrun: %s\n", text.c_str()); }

// Owned by join_main; loop-confined.
class Joiner {
 public:
  Joiner(MainLoop& loop, const JoinConfig& config, const crypto::Secret& token)
      : loop_(loop), config_(config), token_(token), last_call_(loop.get(), [this] { over(); }) {}

  // Until the launcher has taken this host, or has refused it, or the time is over.
  Status join() {
    const Deadline deadline = Deadline::after(config_.start_timeout);
    TimePoint next_notice = SteadyClock::now() + kNotice;
    for (;;) {
      Status status = try_once(deadline);
      if (status.is_ok() || status.code() != StatusCode::kPeerLost) return status;
      if (deadline.expired()) {
        return Status::timeout("nobody waits for hosts at " + where() + ", for " +
                               std::to_string(config_.start_timeout.count()) +
                               " s (--start-timeout): " + status.message());
      }
      if (SteadyClock::now() >= next_notice) {
        say("still waits for a launcher at " + where() + ": " + status.message());
        next_notice += 2 * kNotice;
      }
      HVD_RETURN_IF_ERROR(pause_for(kPause, deadline, -1));
    }
  }

  int serve(const std::vector<int>& signals) {
    signals_.emplace(loop_, signals, [this](int signal) { told_to_end(signal); });
    while (!code_) loop_.run();
    return *code_;
  }

 private:
  std::string where() const {
    const bool is_v6 = config_.launcher.find(':') != std::string::npos;
    return (is_v6 ? "[" + config_.launcher + "]" : config_.launcher) + ":" + std::to_string(config_.port);
  }

  // kPeerLost: another try may succeed.
  Status try_once(const Deadline& deadline) {
    const Deadline soon = Deadline::at(std::min(deadline.when(), Deadline::after(kTry).when()));
    HVD_FAILPOINT_RETURN("call.connect");
    auto connected = rendezvous::connect_tcp(config_.launcher, config_.port, soon, -1);
    if (!connected.is_ok()) {
      const Status& status = connected.status();
      return status.code() == StatusCode::kTimeout ? Status::peer_lost(status.message()) : status;
    }
    verdict_.reset();
    lost_.clear();
    HVD_ASSIGN_OR_RETURN(link_, SealedLink::open(loop_, std::move(connected).value(), SealedLink::Side::kHost, token_,
                                                 {.on_proven = [this] { ask(); },
                                                  .on_record = [this](ByteSpan record) { heard(record); },
                                                  .on_end = [this](const std::string& why) { launcher_lost(why); },
                                                  .on_progress = [this] { launcher_took(); }}));
    loop::Timer patience(loop_.get(), [this] { launcher_lost("no answer in time"); });
    patience.start(kTry);
    while (!verdict_ && lost_.empty()) loop_.run();
    patience.stop();
    if (verdict_ && verdict_->accepted) return Status::ok();
    link_->close();
    if (verdict_) return Status::precondition("the launcher at " + where() + " refuses this host: " + verdict_->reason);
    if (link_->has_other_token()) {
      return Status::precondition("who waits at " + where() + " does not have the token of " + config_.token_file);
    }
    return Status::peer_lost(lost_);
  }

  void ask() {
    utsname names = {};
    const std::string node = ::uname(&names) == 0 ? names.nodename : "";
    link_->write(encode(JoinRequest{
        .version = HVD_VERSION, .name = config_.host_name.value_or(node), .node = config_.node_name.value_or("")}));
  }

  void heard(ByteSpan record) {
    if (input_) {
      input_->write(Bytes(record.begin(), record.end()), true);
      if (input_->queued() > kHighWater) link_->pause(true);
      return;
    }
    if (verdict_ && as_text(record) == kJobIsOver) {
      say("the job at " + where() + " has ended without a use for this host");
      return end(0);
    }
    if (verdict_) return start_agent(std::string(as_text(record)));
    auto verdict = decode_join_verdict(record);
    if (!verdict.is_ok()) return launcher_lost(verdict.status().message());
    verdict_ = std::move(verdict).value();
    loop_.stop();
  }

  void start_agent(const std::string& cookie) {
    const Status status = spawn(cookie);
    if (status.is_ok()) return;
    say(status.message());
    end(1);
  }

  Status spawn(const std::string& cookie) {
    HVD_FAILPOINT_RETURN("call.agent");
    HVD_ASSIGN_OR_RETURN(Pipe in, make_pipe());
    HVD_ASSIGN_OR_RETURN(Pipe out, make_pipe());
    ChildOptions options;
    options.file = "/proc/self/exe";
    options.argv = {"horovodrun", "--agent", cookie};
    options.env = environment_without_login(config::ProcessEnv());
    options.stdin_fd = in.read_end.get();
    options.stdout_fd = out.write_end.get();
    options.stderr_fd = STDERR_FILENO;
    HVD_ASSIGN_OR_RETURN(agent_, Child::spawn(loop_, options, [this](ExitStatus agent_status) {
                           status_ = agent_status;
                           maybe_over();
                         }));
    HVD_ASSIGN_OR_RETURN(input_, PipeWriter::open(loop_, std::move(in.write_end),
                                                  {.on_progress = [this] { agent_took(); }, .on_error = {}}));
    HVD_ASSIGN_OR_RETURN(output_, PipeReader::open(loop_, std::move(out.read_end),
                                                   {.on_data = [this](ByteSpan bytes) { agent_said(bytes); },
                                                    .on_end = [this] { maybe_over(); }}));
    return Status::ok();
  }

  void agent_said(ByteSpan bytes) {
    link_->write(bytes);
    if (link_->queued() > kHighWater) output_->pause();
  }

  void agent_took() {
    if (input_->queued() <= kHighWater) link_->pause(false);
  }

  void launcher_took() {
    if (!output_) return;
    if (link_->queued() <= kHighWater) output_->resume();
    if (status_) maybe_over();
  }

  // The agent's lease ends, and with it what it has started.
  void launcher_lost(const std::string& why) {
    lost_ = why;
    if (input_) input_->close();
    if (output_) output_->resume();  // what still comes is dropped
    if (!verdict_) return loop_.stop();
    if (input_) return maybe_over();
    say("the launcher at " + where() + " has gone before the job has begun: " + why);
    end(1);
  }

  // By whoever has started us.
  void told_to_end(int signal) {
    if (!agent_) return end(128 + signal);
    signal_ = signal;
    agent_->kill_group(SIGTERM);
  }

  // The agent's last word is on its way: who has it closes the connection. An agent that failed has none.
  void maybe_over() {
    if (!status_ || !output_) return;
    const bool sent = output_->ended() && !status_->ok() && link_->queued() == 0;
    if (sent || !link_->end().empty()) return over();
    if (!last_call_.active()) last_call_.start(kLastCall);
  }

  void over() {
    if (code_) return;
    if (status_->ok() || signal_ != 0) return end(signal_ != 0 ? 128 + signal_ : 0);
    say(lost_.empty() ? "the agent " + describe(*status_)
                      : "lost the launcher at " + where() + ", and has ended what ran here: " + lost_);
    end(1);
  }

  void end(int code) {
    code_ = code;
    link_->close();
    loop_.stop();
  }

  MainLoop& loop_;
  const JoinConfig& config_;
  const crypto::Secret token_;
  std::unique_ptr<SealedLink> link_;
  std::optional<JoinVerdict> verdict_;
  std::string lost_;  // why, once the launcher is
  std::unique_ptr<Child> agent_;
  std::unique_ptr<PipeWriter> input_;   // of the agent
  std::unique_ptr<PipeReader> output_;  // of the agent
  std::optional<ExitStatus> status_;    // of the agent
  std::optional<SignalWatcher> signals_;
  int signal_ = 0;  // that we got
  loop::Timer last_call_;
  std::optional<int> code_;
};

}  // namespace

int join_main(const JoinConfig& config, std::uint64_t ignored) {
  const auto token = read_token(config.token_file);
  if (!token.is_ok()) {
    say("--token-file: " + token.status().message());
    return 1;
  }
  if (config.ends_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    if (::getppid() != *config.ends_with_parent) return 128 + SIGTERM;  // it has ended already
  }
  ignore_io_signals();
  MainLoop loop;
  Joiner joiner(loop, config, token.value());
  if (const Status status = joiner.join(); !status.is_ok()) {
    say(status.message());
    return 1;
  }
  return joiner.serve(without(ignored, {SIGINT, SIGTERM, SIGHUP, SIGQUIT}));
}

}  // namespace hvd::launcher
