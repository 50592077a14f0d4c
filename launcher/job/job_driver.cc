#include "launcher/job/job_driver.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <utility>

#include "launcher/job/error_summary.h"
#include "launcher/job/launch_text.h"
#include "launcher/protocol/cookie.h"
#include "launcher/ssh/ssh_command.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kSummaryLines = 20;
constexpr int kOutputGone = 128 + SIGPIPE;
constexpr Millis kRetryPause{300};
constexpr Millis kMaxLookup{10000};

std::vector<std::string> host_names(const std::vector<HostAssignment>& hosts) {
  std::vector<std::string> names;
  for (const HostAssignment& host : hosts) names.push_back(host.host.name);
  return names;
}

JobTimings timings_of(const LaunchConfig& config) {
  JobTimings timings;
  timings.start = config.start_timeout;
  return timings;
}

// Half of the time to start is for the agents.
Millis lookup_patience(const LaunchConfig& config) {
  return std::min(kMaxLookup, Millis(config.start_timeout) / 2);
}

}  // namespace

JobDriver::JobDriver(Loop& loop, JobInput input)
    : loop_(loop),
      input_(std::move(input)),
      secret_(crypto::Secret::random()),
      job_(input_.hosts, timings_of(input_.config), SteadyClock::now()),
      output_(loop, {.num_proc = input_.config.num_proc, .with_time = input_.config.prefix_output_with_timestamp},
              {.on_progress = [this] { output_progress(); },
               .on_broken = [this](Status status) { output_broken(status); }}),
      answered_(input_.hosts.size(), false),
      tries_(input_.hosts.size(), 0),
      agent_of_rank_(static_cast<std::size_t>(input_.config.num_proc), -1),
      resolver_(loop, host_names(input_.hosts), input_.config.ssh_program,
                lookup_patience(input_.config), [this](std::vector<ResolvedHost> hosts) { resolved(hosts); }),
      timer_(loop, [this] { timer_fired(); }),
      signals_(loop, {SIGINT, SIGTERM, SIGHUP, SIGQUIT}, [this](int signal) { signal_received(signal); }) {
  for (std::size_t agent = 0; agent < input_.hosts.size(); ++agent) {
    for (const RankSlot& slot : input_.hosts[agent].ranks) {
      agent_of_rank_[static_cast<std::size_t>(slot.rank)] = static_cast<int>(agent);
    }
  }
}

int JobDriver::run() {
  for (const std::string& notice : input_.config.notices) output_.message(notice);
  if (input_.config.output_filename) {
    const Status status = output_.open_files(*input_.config.output_filename);
    if (!status.is_ok()) {
      output_.message(status.message());
      finish(1);
    }
  }
  if (!exit_code_) {
    resolver_.start();
    arm_timer();
  }
  while (!exit_code_ || !output_.flushed()) loop_.run();
  return *exit_code_;
}

void JobDriver::resolved(const std::vector<ResolvedHost>& hosts) {
  if (exit_code_) return;
  const Status status = prepare(hosts);
  if (!status.is_ok()) {
    output_.message(status.message());
    return finish(1);
  }
  start_links();
}

Status JobDriver::prepare(const std::vector<ResolvedHost>& hosts) {
  HVD_ASSIGN_OR_RETURN(plan_, plan_launch(hosts, input_.config.nics,
                                          {.own = interface_addresses(), .source_towards = source_address_towards}));
  HVD_ASSIGN_OR_RETURN(server_, rendezvous::Server::start({.secret = secret_,
                                                           .listen_addresses = plan_.listen_addresses,
                                                           .num_proc = input_.config.num_proc}));
  for (std::size_t agent = 0; agent < input_.hosts.size(); ++agent) links_.push_back(make_link(static_cast<int>(agent)));
  planned_ = true;
  return Status::ok();
}

std::unique_ptr<AgentLink> JobDriver::make_link(int agent) {
  const HostSpec& host = input_.hosts[static_cast<std::size_t>(agent)].host;
  AgentLinkOptions options;
  options.agent = agent;
  options.host = host.name;
  options.over_ssh = !plan_.agents[static_cast<std::size_t>(agent)].local;
  options.cookie = make_cookie();
  if (options.over_ssh) {
    options.agent_path = input_.config.agent_path.value_or(input_.self_path);
    options.argv = ssh_argv(input_.config, host, remote_agent_command(options.agent_path, options.cookie));
    options.file = options.argv[0];
  } else {
    options.agent_path = input_.self_path;
    options.argv = {"horovodrun", "--agent", options.cookie};
    options.file = "/proc/self/exe";
  }
  if (input_.config.verbose > 0) describe_launch(agent, options.argv);
  return std::make_unique<AgentLink>(loop_, std::move(options), static_cast<AgentLinkEvents&>(*this));
}

void JobDriver::describe_launch(int agent, const std::vector<std::string>& argv) {
  const PlannedAgent& planned = plan_.agents[static_cast<std::size_t>(agent)];
  output_.message(launch_text(input_.hosts[static_cast<std::size_t>(agent)], input_.config.command, input_.env, argv,
                              planned.rendezvous_addresses, server_->port()));
}

void JobDriver::start_links() {
  while (next_link_ < links_.size() && connecting_ < kMaxConnecting) {
    ++connecting_;
    start_link(static_cast<int>(next_link_++));
  }
}

void JobDriver::start_link(int agent) {
  ++tries_[static_cast<std::size_t>(agent)];
  const Status status = links_[static_cast<std::size_t>(agent)]->start();
  const std::string& host = input_.hosts[static_cast<std::size_t>(agent)].host.name;
  if (!status.is_ok()) agent_lost(agent, "host " + host + ": " + status.message(), false);
}

void JobDriver::retry_later(int agent) {
  // A random part, or all that were turned away together would come back together.
  std::array<std::uint8_t, 2> random{};
  crypto::random_bytes(random);
  const Millis wait = kRetryPause * tries_[static_cast<std::size_t>(agent)] + Millis(random[0] * 4);
  retry_timers_.push_back(std::make_unique<Timer>(loop_, [this, agent] {
    if (!job_.connecting()) return;
    auto& link = links_[static_cast<std::size_t>(agent)];
    retired_.push_back(std::exchange(link, make_link(agent)));
    start_link(agent);
  }));
  retry_timers_.back()->start(wait);
}

void JobDriver::launch() {
  for (std::size_t agent = 0; agent < links_.size(); ++agent) {
    const HostAssignment& host = input_.hosts[agent];
    LaunchMessage message{.secret = secret_,
                          .hostname = host.host.name,
                          .cwd = input_.cwd,
                          .env = {input_.env.begin(), input_.env.end()},
                          .command = input_.config.command,
                          .ranks = host.ranks,
                          .rendezvous_port = server_->port(),
                          .rendezvous_addresses = plan_.agents[agent].rendezvous_addresses};
    Bytes payload = encode(message);
    if (payload.size() > kMaxLaunchBytes) {
      return apply(job_.stop("the environment and the command together have " + std::to_string(payload.size()) +
                                 " bytes, the limit is " + std::to_string(kMaxLaunchBytes),
                             1, SteadyClock::now()));
    }
    links_[agent]->send(FrameType::kLaunch, payload, true);
    explicit_bzero(payload.data(), payload.size());
  }
}

void JobDriver::agent_frame(int agent, const Frame& frame) {
  const Status status = handle(agent, frame);
  if (status.is_ok()) return;
  const std::string& host = input_.hosts[static_cast<std::size_t>(agent)].host.name;
  links_[static_cast<std::size_t>(agent)]->drop();
  apply(job_.agent_lost(agent, "host " + host + ": " + status.message(), SteadyClock::now()));
}

bool JobDriver::owns(int agent, int rank) const {
  return rank >= 0 && static_cast<std::size_t>(rank) < agent_of_rank_.size() &&
         agent_of_rank_[static_cast<std::size_t>(rank)] == agent;
}

Status JobDriver::handle(int agent, const Frame& frame) {
  const TimePoint now = SteadyClock::now();
  const auto not_its = [](int rank) {
    return Status::invalid_argument("its agent speaks of rank " + std::to_string(rank) + ", which is not there");
  };
  switch (frame.type) {
    case FrameType::kHello: {
      HVD_ASSIGN_OR_RETURN(const HelloMessage message, decode_hello(frame.payload));
      if (message.version != HVD_VERSION) {
        return Status::precondition("the agent there is of version " + message.version + ", this is " + HVD_VERSION +
                                    ": install the same version on all hosts");
      }
      if (answered_[static_cast<std::size_t>(agent)]) return Status::invalid_argument("its agent says hello twice");
      answered_[static_cast<std::size_t>(agent)] = true;
      --connecting_;
      start_links();
      apply(job_.agent_ready(agent, now));
      return Status::ok();
    }
    case FrameType::kRankStarted: {
      HVD_ASSIGN_OR_RETURN(const RankStartedMessage message, decode_rank_started(frame.payload));
      if (!owns(agent, message.rank)) return not_its(message.rank);
      apply(job_.rank_started(message.rank, message.pid, now));
      return Status::ok();
    }
    case FrameType::kRankNotStarted: {
      HVD_ASSIGN_OR_RETURN(const RankNotStartedMessage message, decode_rank_not_started(frame.payload));
      if (!owns(agent, message.rank)) return not_its(message.rank);
      apply(job_.rank_not_started(message.rank, message.code, message.reason, now));
      return Status::ok();
    }
    case FrameType::kOutput: {
      HVD_ASSIGN_OR_RETURN(const OutputMessage message, decode_output(frame.payload));
      if (!owns(agent, message.rank)) return not_its(message.rank);
      output_.output(message.rank, message.is_stderr, message.bytes);
      output_progress();
      return Status::ok();
    }
    case FrameType::kOutputEnd: {
      HVD_ASSIGN_OR_RETURN(const OutputEndMessage message, decode_output_end(frame.payload));
      if (!owns(agent, message.rank)) return not_its(message.rank);
      output_.output_end(message.rank, message.is_stderr);
      return Status::ok();
    }
    case FrameType::kRankExited: {
      HVD_ASSIGN_OR_RETURN(const RankExitedMessage message, decode_rank_exited(frame.payload));
      if (!owns(agent, message.rank)) return not_its(message.rank);
      apply(job_.rank_exited(message.rank, {.code = message.code, .signal = message.signal}, now));
      return Status::ok();
    }
    case FrameType::kNotice: {
      HVD_ASSIGN_OR_RETURN(const TextMessage message, decode_text(frame.payload));
      output_.message("host " + input_.hosts[static_cast<std::size_t>(agent)].host.name + ": " + message.text);
      return Status::ok();
    }
    case FrameType::kError: {
      HVD_ASSIGN_OR_RETURN(const TextMessage message, decode_text(frame.payload));
      return Status::internal("its agent says: " + message.text);
    }
    case FrameType::kDone:
      links_[static_cast<std::size_t>(agent)]->close_lease();
      apply(job_.agent_done(agent, now));
      return Status::ok();
    default:
      return Status::invalid_argument("its agent sent a frame that only the launcher sends");
  }
}

void JobDriver::agent_lost(int agent, const std::string& reason, bool retry_may_help) {
  if (retry_may_help && job_.connecting() && tries_[static_cast<std::size_t>(agent)] < kMaxTries) {
    return retry_later(agent);
  }
  if (!answered_[static_cast<std::size_t>(agent)]) {
    answered_[static_cast<std::size_t>(agent)] = true;
    --connecting_;
    start_links();
  }
  apply(job_.agent_lost(agent, reason, SteadyClock::now()));
}

void JobDriver::signal_received(int signal) { apply(job_.signal_received(signal, SteadyClock::now())); }

void JobDriver::output_broken(const Status& status) {
  apply(job_.stop("nobody takes the output any more (" + status.message() + ")", kOutputGone, SteadyClock::now()));
}

void JobDriver::output_progress() {
  const bool congested = output_.congested();
  for (auto& link : links_) link->pause(congested);
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
      for (auto& link : links_) link->send(FrameType::kSignal, encode(SignalMessage{action.signal}));
      return;
    case JobAction::Kind::kShutdownAgents:
      return shutdown_agents(action.at_once);
    case JobAction::Kind::kDropAgents:
      for (auto& link : links_) link->drop();
      return;
    case JobAction::Kind::kPrint:
      return output_.message(action.text);
    case JobAction::Kind::kFinish:
      return finish(action.code);
  }
}

void JobDriver::shutdown_agents(bool at_once) {
  next_link_ = links_.size();  // those that have not been started are not needed any more
  for (std::size_t agent = 0; agent < links_.size(); ++agent) {
    if (answered_[agent]) {
      links_[agent]->send(FrameType::kShutdown, encode(ShutdownMessage{at_once}));
    } else {
      links_[agent]->drop();
    }
  }
}

void JobDriver::arm_timer() {
  const auto deadline = job_.deadline();
  if (!deadline || exit_code_) return timer_.stop();
  timer_.start(std::max(Millis(0), std::chrono::ceil<Millis>(*deadline - SteadyClock::now())));
}

void JobDriver::timer_fired() {
  apply(job_.timer_fired(SteadyClock::now(), [this](int agent) {
    return planned_ ? links_[static_cast<std::size_t>(agent)]->last_words() : std::string();
  }));
}

void JobDriver::finish(int code) {
  if (exit_code_) return;
  exit_code_ = code;
  output_.end_all();
  const auto& failure = job_.failure();
  const std::string summary =
      failure ? error_summary(job_, output_.last_stderr_lines(failure->rank, kSummaryLines)) : "";
  if (!summary.empty()) output_.message(summary);
  timer_.stop();
  stop_when_flushed();
}

void JobDriver::stop_when_flushed() {
  if (exit_code_ && output_.flushed()) loop_.stop();
}

}  // namespace hvd::launcher
