#include "launcher/agent/agent.h"

#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "launcher/agent/descendants.h"
#include "launcher/environment/cpu_quota.h"
#include "launcher/process/descriptors.h"
#include "launcher/protocol/cookie.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {
namespace {

constexpr Millis kLeftoverGrace{1000};  // after a normal end, for what ranks left behind (a resource tracker, say)
constexpr Millis kDrainDeadline{500};   // for output that nobody writes any more, but that somebody holds open

bool is_usable_directory(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string node_name() {
  utsname names = {};
  return ::uname(&names) == 0 ? names.nodename : "";
}

std::optional<std::string> content_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

HostFacts facts_of_this_host() {
  HostFacts facts;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> list(::if_nameindex(), &::if_freenameindex);
  for (const struct if_nameindex* one = list.get(); one != nullptr && one->if_name != nullptr; ++one) {
    facts.interfaces.emplace_back(one->if_name);
  }
  cpu_set_t mine;
  CPU_ZERO(&mine);
  // More processors than the set has room for: too many to share badly.
  facts.cores = ::sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : CPU_SETSIZE;
  facts.cores = cores_within(facts.cores, cpu_quota(content_of));
  return facts;
}

Agent::Agent(MainLoop& loop, Fd from_launcher, Fd to_launcher)
    : loop_(loop),
      sweeper_(loop, [this] { swept(); }),
      drain_deadline_(loop.get(), [this] { for (auto& rank : ranks_) rank->close_output(); finish_when_drained(); }),
      signals_(loop, {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}, [this](int signal) {
        if (signal == SIGCHLD) child_ended();
        else lease_lost();
      }) {
  auto output = PipeWriter::open(loop, std::move(to_launcher),
                                 {.on_progress = [this] { apply_backpressure(); stop_when_written(); },
                                  .on_error = [this](const Status&) { lease_lost(); }});
  auto input = PipeReader::open(loop, std::move(from_launcher),
                                {.on_data = [this](ByteSpan bytes) { received(bytes); },
                                 .on_end = [this] { lease_lost(); }},
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
      explicit_bzero(frame.payload.data(), frame.payload.size());
    }
    if (!status.is_ok()) return fail(status);
  }
}

void Agent::fail(const Status& status) {
  send(FrameType::kError, TextMessage{status.message()});
  lease_lost();
}

Status Agent::handle(const Frame& frame) {
  id_ = frame.agent;
  switch (frame.type) {
    case FrameType::kLaunch: {
      HVD_ASSIGN_OR_RETURN(LaunchMessage message, decode_launch(frame.payload));
      return launch(std::move(message));
    }
    case FrameType::kSignal: {
      HVD_ASSIGN_OR_RETURN(const SignalMessage message, decode_signal(frame.payload));
      signal_ranks(message.signal);
      return Status::ok();
    }
    case FrameType::kInput: {
      HVD_ASSIGN_OR_RETURN(InputMessage message, decode_input(frame.payload));
      return give_input(std::move(message));
    }
    case FrameType::kShutdown: {
      HVD_ASSIGN_OR_RETURN(const ShutdownMessage message, decode_shutdown(frame.payload));
      // After SIGKILL nothing deserves a grace: what was forked during the kill has only escaped it.
      if (killed_) {
        sweeper_.kill_now();
      } else {
        sweeper_.start(message.at_once ? Millis(0) : kLeftoverGrace);
      }
      return Status::ok();
    }
    default:
      return Status::invalid_argument("an agent got a frame of type " +
                                      std::to_string(static_cast<int>(frame.type)));
  }
}

Status Agent::launch(LaunchMessage message) {
  if (launch_) return Status::precondition("an agent got a second launch frame");
  HVD_ASSIGN_OR_RETURN(secret_socket_, SecretSocket::open(loop_, message.secret, [this](int rank, rendezvous::AgentNotice kind) {
                         send(FrameType::kRankFailing, RankFailingMessage{rank, kind == rendezvous::AgentNotice::kLeaving});
                       }));
  std::error_code ignored;
  if (!is_usable_directory(message.cwd)) {
    send(FrameType::kNotice, TextMessage{"there is no directory " + message.cwd + " there; ranks start in " +
                                         std::filesystem::current_path(ignored).string()});
    message.cwd.clear();
  }
  facts_ = facts_of_this_host();
  HVD_ASSIGN_OR_RETURN(environment_, host_environment(config::ProcessEnv(), message.env, message.ranks.size(), facts_));
  launch_ = std::move(message);
  watch_lease();
  probe_ = std::make_unique<RendezvousProbe>(loop_, launch_->rendezvous_addresses, launch_->rendezvous_port,
                                             [this](const Result<std::string>& address) { probed(address); });
  probe_->start();
  return Status::ok();
}

void Agent::probed(const Result<std::string>& address) {
  if (!address.is_ok()) return fail(address.status());
  if (leased_ && !sweeper_.active()) start_ranks(address.value());
}

void Agent::start_ranks(const std::string& address) {
  // For each rank two of its output, one of its input, and one more while it starts.
  const std::size_t limit_before = raise_descriptor_limit(4 * launch_->ranks.size());
  if (environment_.threads && launch_->ranks.front().rank == 0) {
    send(FrameType::kNotice,
         TextMessage{"OMP_NUM_THREADS=" + std::to_string(*environment_.threads) + " for each of its " +
                     std::to_string(launch_->ranks.size()) + " ranks, their share of " + std::to_string(facts_.cores) +
                     (facts_.cores == 1 ? " core" : " cores") + "; set OMP_NUM_THREADS to choose another number"});
  }
  const StartChoice choice{.agent_socket = secret_socket_->name(),
                           .rendezvous_address = address,
                           .rendezvous_port = launch_->rendezvous_port};
  for (const RankSlot& slot : launch_->ranks) {
    ranks_.push_back(std::make_unique<RankProcess>(loop_, slot.rank, static_cast<RankEvents&>(*this)));
    ranks_.back()->start({.argv = launch_->command,
                          .env = rank_environment(environment_, launch_->hostname, slot, choice),
                          .cwd = launch_->cwd,
                          .descriptor_limit = limit_before,
                          .ignored_signals = launch_->ignored_signals,
                          .has_input = std::ranges::count(launch_->input_ranks, slot.rank) > 0});
  }
  launch_->env.clear();  // they hold the user's tokens: not longer than needed
  environment_.variables.clear();
}

void Agent::signal_ranks(int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    for (auto& rank : ranks_) rank->kill(signal);
    return;
  }
  if (signal != SIGSTOP && signal != SIGCONT && launch_ && ranks_.empty() && probe_) {
    probe_.reset();  // they were about to start; now they never will
    for (const RankSlot& slot : launch_->ranks) rank_exited(slot.rank, {.code = 0, .signal = signal});
  }
  for (auto& rank : ranks_) rank->kill_group(signal);
  if (signal != SIGKILL) return;
  killed_ = true;
  for (int pid : descendants_of(::getpid())) ::kill(pid, SIGKILL);
}

Status Agent::give_input(InputMessage message) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (launch_->ranks[i].rank != message.rank) continue;
    ranks_[i]->write_input(std::move(message.bytes));
    return Status::ok();
  }
  return Status::invalid_argument("an agent got input for rank " + std::to_string(message.rank) + ", which is not there");
}

void Agent::send_frame(FrameType type, const Bytes& payload) {
  if (leased_) output_->write(encode_frame(type, id_, payload));
}

void Agent::rank_started(int rank, int pid) { send(FrameType::kRankStarted, RankStartedMessage{rank, pid}); }

void Agent::rank_not_started(int rank, int code, std::string reason) {
  send(FrameType::kRankNotStarted, RankNotStartedMessage{rank, code, std::move(reason)});
}

void Agent::rank_output(int rank, bool is_stderr, ByteSpan bytes) {
  send(FrameType::kOutput, OutputMessage{rank, is_stderr, Bytes(bytes.begin(), bytes.end())});
  apply_backpressure();
}

void Agent::rank_output_end(int rank, bool is_stderr) {
  send(FrameType::kOutputEnd, OutputEndMessage{rank, is_stderr});
  if (swept_) finish_when_drained();
}

void Agent::rank_exited(int rank, ExitStatus status) {
  send(FrameType::kRankExited, RankExitedMessage{rank, status.code, status.signal});
}

void Agent::rank_took_input(int rank, std::size_t size) {
  send(FrameType::kInputTaken, InputTakenMessage{rank, static_cast<std::uint32_t>(size)});
}

void Agent::apply_backpressure() {
  const bool full = leased_ && output_->queued() > kHighWater;
  if (full == paused_) return;
  paused_ = full;
  for (auto& rank : ranks_) full ? rank->pause_output() : rank->resume_output();
}

void Agent::watch_lease() {
  std::optional<std::string> launchers;
  for (const auto& [name, value] : launch_->env) {
    if (name == "SSH_CONNECTION") launchers = value;
  }
  lease_watch_ = std::make_unique<LeaseWatch>(
      loop_, config::ProcessEnv().get("SSH_CONNECTION"), launchers,
      LeaseWatch::Callbacks{.send_sign = [this] { send_sign_of_life(); }, .on_lost = [this] { lease_lost(); }});
}

void Agent::send_sign_of_life() {
  // What waits in the queue is sign enough.
  if (output_->queued() == 0) send(FrameType::kOutput, OutputMessage{launch_->ranks[0].rank, false, {}});
}

void Agent::lease_lost() {
  // After the last word a closed lease is how the launcher lets us go; if it has not taken that word, it never will.
  if (done_sent_) return loop_.stop();
  // Output that still comes is read and dropped, so that no rank waits for it while it ends.
  leased_ = false;
  apply_backpressure();
  sweeper_.start(Millis(0));
}

void Agent::child_ended() {
  std::set<int> known;
  for (const auto& rank : ranks_) {
    if (rank->running()) known.insert(rank->pid());
  }
  reap_adopted(known);
  sweeper_.look_again();
}

void Agent::swept() {
  swept_ = true;
  drain_deadline_.start(kDrainDeadline);
  finish_when_drained();
}

void Agent::finish_when_drained() {
  if (done_sent_) return;
  if (leased_) {
    for (const auto& rank : ranks_) {
      if (!rank->output_ended()) return;
    }
    send_frame(FrameType::kDone, {});
  }
  done_sent_ = true;
  stop_when_written();
}

void Agent::stop_when_written() {
  if (done_sent_ && (!leased_ || output_->queued() == 0)) loop_.stop();
}

}  // namespace hvd::launcher
