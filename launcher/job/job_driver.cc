#include "launcher/job/job_driver.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/job/error_summary.h"
#include "launcher/plan/plan_text.h"
#include "launcher/protocol/cookie.h"
#include "launcher/ssh/ssh_command.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kSummaryLines = 20;
constexpr std::size_t kLinesInSight = 20;  // that came after the failed rank's own: a screen still shows both
constexpr int kOutputGone = 128 + SIGPIPE;
constexpr Millis kMaxLookup{10000};
constexpr Millis kLastFlush{2000};      // once the user wants us to end, for a reader that does not read
constexpr Millis kSuspendDelay{100};    // for the agents to stop their ranks, and for what these print to arrive
constexpr Millis kSignalMayFollow{100};
constexpr int kLeaveAtOnce = 3;         // signals that say: end

std::vector<std::string> host_names(const std::vector<HostAssignment>& hosts) {
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const HostAssignment& host : hosts) names.push_back(host.host.name);
  return names;
}

JobTimings timings_of(const LaunchConfig& config) {
  JobTimings timings;
  timings.start = config.start_timeout;
  if (config.kill_grace) timings.term = timings.interrupt = *config.kill_grace;
  return timings;
}

std::vector<int> input_ranks(const LaunchConfig& config) {
  std::vector<int> ranks;
  if (config.input_to == InputTo::kNobody || is_empty_input(STDIN_FILENO)) return ranks;
  for (int rank = 0; rank < (config.input_to == InputTo::kAll ? config.num_proc : 1); ++rank) ranks.push_back(rank);
  return ranks;
}

// Those of the signals that we act on which we are not told to ignore.
std::vector<int> watched_signals(std::uint64_t ignored) {
  std::vector<int> signals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
  std::erase_if(signals, [ignored](int signal) { return is_in(ignored, signal); });
  return signals;
}

// Half of the time to start is for the agents.
Millis lookup_patience(const LaunchConfig& config) {
  return std::min(kMaxLookup, Millis(config.start_timeout) / 2);
}

}  // namespace

JobDriver::JobDriver(MainLoop& loop, JobPlan plan, std::uint64_t ignored_signals)
    : loop_(loop),
      plan_(std::move(plan)),
      ignored_signals_(ignored_signals),
      secret_(crypto::Secret::random()),
      job_(plan_.hosts, timings_of(plan_.config), SteadyClock::now()),
      output_(loop, {.num_proc = plan_.config.num_proc, .with_time = plan_.config.prefix_output_with_timestamp,
                     .prompts = plan_.config.input_asked_for},
              {.on_progress = [this] { output_progress(); },
               .on_broken = [this](const Status& status) { output_broken(status); }}),
      fleet_(loop, [this](int agent) { return link_options(agent); }, static_cast<AgentFleetEvents&>(*this)),
      agent_of_rank_(static_cast<std::size_t>(plan_.config.num_proc), -1),
      input_ranks_(input_ranks(plan_.config)),
      input_forwarder_(loop, input_ranks_,
                       {.send = [this](int rank, ByteSpan bytes) { send_input(rank, bytes); },
                        .on_line_typed = [this] { output_.line_was_typed(); }}),
      resolver_(loop, host_names(plan_.hosts), plan_.config.ssh_program, lookup_patience(plan_.config),
                [this](const std::vector<ResolvedHost>& hosts) { resolved(hosts); }),
      timer_(loop.get(), [this] { timer_fired(); }),
      flush_timer_(loop.get(), [this] { give_up_flushing(); }),
      suspend_timer_(loop.get(), [this] { suspend(); }),
      broken_timer_(loop.get(), [this] { end_for_output(); }),
      signals_(loop, watched_signals(ignored_signals_), [this](int signal) { signal_received(signal); }) {
  for (std::size_t agent = 0; agent < plan_.hosts.size(); ++agent) {
    for (const RankSlot& slot : plan_.hosts[agent].ranks) {
      agent_of_rank_[static_cast<std::size_t>(slot.rank)] = static_cast<int>(agent);
    }
  }
}

int JobDriver::run() {
  for (const std::string& notice : plan_.config.notices) output_.message(notice);
  if (plan_.config.output_filename) {
    const Status status = output_.open_files(*plan_.config.output_filename);
    if (!status.is_ok()) {
      output_.message(status.message());
      finish(1);
    }
  }
  if (!exit_code_) {
    resolver_.start();
    arm_timer();
  }
  while (!over()) loop_.run();
  return *exit_code_;
}

void JobDriver::resolved(const std::vector<ResolvedHost>& hosts) {
  if (exit_code_) return;
  const Status status = prepare(hosts);
  if (!status.is_ok()) {
    output_.message(status.message());
    return finish(1);
  }
  fleet_.start(plan_.hosts.size());
}

Status JobDriver::prepare(const std::vector<ResolvedHost>& hosts) {
  HVD_ASSIGN_OR_RETURN(network_, plan_launch(hosts, plan_.config.nics,
                                          {.own = interface_addresses(), .source_towards = source_address_towards}));
  HVD_ASSIGN_OR_RETURN(server_, rendezvous::Server::start({.secret = secret_,
                                                           .listen_addresses = network_.listen_addresses,
                                                           .num_proc = plan_.config.num_proc}));
  if (plan_.config.verbose > 0) describe_launch();
  return Status::ok();
}

AgentLinkOptions JobDriver::link_options(int agent) {
  const HostSpec& host = plan_.hosts[static_cast<std::size_t>(agent)].host;
  AgentLinkOptions options;
  options.agent = agent;
  options.host = host.name;
  options.over_ssh = !network_.agents[static_cast<std::size_t>(agent)].local;
  options.cookie = make_cookie();
  if (options.over_ssh) {
    options.agent_path = plan_.config.agent_path.value_or(plan_.self_path);
    options.argv = ssh_argv(plan_.config, host, remote_agent_command(options.agent_path, options.cookie));
    options.file = options.argv[0];
  } else {
    options.agent_path = plan_.self_path;
    options.argv = {"horovodrun", "--agent", options.cookie};
    options.file = "/proc/self/exe";
  }
  return options;
}

void JobDriver::describe_launch() {
  output_.message(launch_text(plan_));
  for (std::size_t agent = 0; agent < plan_.hosts.size(); ++agent) {
    output_.message(start_text(plan_.hosts[agent], link_options(static_cast<int>(agent)).argv,
                               network_.agents[agent].rendezvous_addresses, server_->port()));
  }
}

void JobDriver::launch() {
  const Variables environment = plan_.environment.all();
  for (std::size_t agent = 0; agent < plan_.hosts.size(); ++agent) {
    const HostAssignment& host = plan_.hosts[agent];
    std::vector<std::int32_t> with_input;
    for (const RankSlot& slot : host.ranks) {
      if (std::ranges::count(input_ranks_, slot.rank) > 0) with_input.push_back(slot.rank);
    }
    LaunchMessage message{.secret = secret_,
                          .hostname = host.host.name,
                          .cwd = plan_.cwd,
                          .env = {environment.begin(), environment.end()},
                          .command = plan_.config.command,
                          .ranks = host.ranks,
                          .rendezvous_port = server_->port(),
                          .rendezvous_addresses = network_.agents[agent].rendezvous_addresses,
                          .ignored_signals = ignored_signals_,
                          .input_ranks = std::move(with_input)};
    Bytes payload = encode(message);
    fleet_.send(static_cast<int>(agent), FrameType::kLaunch, payload, true);
    explicit_bzero(payload.data(), payload.size());
  }
}

const std::string& JobDriver::host_name(int agent) const {
  return plan_.hosts[static_cast<std::size_t>(agent)].host.name;
}

void JobDriver::signal_received(int signal) {
  if (signal == SIGTSTP) {
    fleet_.send_all(FrameType::kSignal, encode(SignalMessage{SIGSTOP}));
    return suspend_timer_.start(kSuspendDelay);
  }
  const int before = job_.wishes_to_end();
  const JobActions actions = job_.signal_received(signal, SteadyClock::now());
  if (job_.wishes_to_end() == before) return apply(actions);
  if (exit_code_) exit_code_ = *exit_code_ != 0 ? *exit_code_ : 128 + signal;  // of the output something will be missing
  end_wanted(actions);
  if (job_.wishes_to_end() < kLeaveAtOnce) return;
  fleet_.drop_all();
  finish(128 + signal);
  give_up_flushing();
}

// What the user wants is not to be held up by a reader that does not read: neither the news of the agents, nor our end.
void JobDriver::end_wanted(const JobActions& actions) {
  output_.stop_waiting_for_readers();
  fleet_.pause(false);
  apply(actions);
  if (exit_code_ && !flush_timer_.active()) flush_timer_.start(kLastFlush);
}

// The terminal's Ctrl-Z reaches us alone. The ranks, whose sessions have no terminal, would not even heed a SIGTSTP.
void JobDriver::suspend() {
  const TimePoint before = SteadyClock::now();
  signals_.take_default_action(SIGTSTP);
  job_.was_stopped(SteadyClock::now() - before);
  resolver_.was_stopped();
  if (flush_timer_.active()) flush_timer_.start(kLastFlush);
  arm_timer();
  fleet_.send_all(FrameType::kSignal, encode(SignalMessage{SIGCONT}));
}

// A terminal that closes, and Ctrl-C with `| tee`, are a signal as well, which may come a moment later. That is one wish and
// not two, and the signal says it better.
void JobDriver::output_broken(const Status& status) {
  output_error_ = status.message();
  broken_timer_.start(kSignalMayFollow);
}

void JobDriver::end_for_output() {
  if (job_.wishes_to_end() > 0 || std::exchange(ended_for_output_, true)) return;
  end_wanted(job_.stop("nobody takes the output any more (" + output_error_ + ")", kOutputGone, SteadyClock::now()));
}

void JobDriver::give_up_flushing() {
  flush_given_up_ = true;
  loop_.stop();
}

void JobDriver::send_input(int rank, ByteSpan bytes) {
  Bytes payload = encode(InputMessage{rank, Bytes(bytes.begin(), bytes.end())});
  fleet_.send(agent_of_rank_[static_cast<std::size_t>(rank)], FrameType::kInput, payload, true);
  explicit_bzero(payload.data(), payload.size());
}

void JobDriver::output_progress() {
  const bool congested = output_.congested();
  fleet_.pause(congested);
  stop_when_flushed();
}

void JobDriver::apply(const JobActions& actions) {
  for (const JobAction& action : actions) apply(action);
  arm_timer();
}

void JobDriver::apply(const JobAction& action) {
  switch (action.kind) {
    case JobAction::Kind::kLaunch:
      return launch();
    case JobAction::Kind::kSignalRanks:
      return fleet_.send_all(FrameType::kSignal, encode(SignalMessage{action.signal}));
    case JobAction::Kind::kShutdownAgents:
      fleet_.stop_connecting();
      return fleet_.send_all(FrameType::kShutdown, encode(ShutdownMessage{action.at_once}));
    case JobAction::Kind::kDropAgents:
      return fleet_.drop_all();
    case JobAction::Kind::kPrint:
      return output_.message(action.text);
    case JobAction::Kind::kFinish:
      return finish(action.code);
  }
}

void JobDriver::arm_timer() {
  const auto deadline = job_.deadline();
  if (!deadline || exit_code_) return timer_.stop();
  timer_.start(std::max(Millis(0), std::chrono::ceil<Millis>(*deadline - SteadyClock::now())));
}

void JobDriver::timer_fired() {
  apply(job_.timer_fired(SteadyClock::now(), [this](int agent) { return fleet_.last_words(agent); }));
}

void JobDriver::finish(int code) {
  if (exit_code_) return;
  exit_code_ = code;
  output_.end_all();
  const auto& failure = job_.failure();
  if (failure) {
    const bool are_in_sight = output_.lines_after_stderr(failure->rank) <= kLinesInSight;
    const std::string summary =
        error_summary(job_, output_.last_stderr_lines(failure->rank, kSummaryLines), are_in_sight);
    if (!summary.empty()) output_.message(summary);
  }
  report_limits_hit(code);
  if (output_.lost_bytes() > 0) {
    output_.message(std::to_string(output_.lost_bytes()) + " bytes of the output are lost: see above");
  }
  timer_.stop();
  if (job_.wishes_to_end() > 0) flush_timer_.start(kLastFlush);
  stop_when_flushed();
}

// A client that was turned away may be why the job failed; in a job that went well it is noise from a port scanner.
void JobDriver::report_limits_hit(int code) {
  if (server_ == nullptr || (code == 0 && plan_.config.verbose == 0)) return;
  const std::string limits = server_->stats().limits_hit();
  if (!limits.empty()) output_.message("the rendezvous server turned clients away: " + limits);
}

void JobDriver::stop_when_flushed() {
  if (over()) loop_.stop();
}

}  // namespace hvd::launcher
