#include "launcher/job/job_driver.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/job/error_summary.h"
#include "launcher/job/launch_text.h"
#include "launcher/protocol/cookie.h"
#include "launcher/ssh/ssh_command.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kSummaryLines = 20;
constexpr int kOutputGone = 128 + SIGPIPE;
constexpr Millis kMaxLookup{10000};

std::vector<std::string> host_names(const std::vector<HostAssignment>& hosts) {
  std::vector<std::string> names;
  names.reserve(hosts.size());
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

JobDriver::JobDriver(MainLoop& loop, JobInput input)
    : loop_(loop),
      input_(std::move(input)),
      secret_(crypto::Secret::random()),
      job_(input_.hosts, timings_of(input_.config), SteadyClock::now()),
      output_(loop, {.num_proc = input_.config.num_proc, .with_time = input_.config.prefix_output_with_timestamp},
              {.on_progress = [this] { output_progress(); },
               .on_broken = [this](const Status& status) { output_broken(status); }}),
      fleet_(loop, [this](int agent) { return link_options(agent); }, static_cast<AgentFleetEvents&>(*this)),
      agent_of_rank_(static_cast<std::size_t>(input_.config.num_proc), -1),
      resolver_(loop, host_names(input_.hosts), input_.config.ssh_program, lookup_patience(input_.config),
                [this](const std::vector<ResolvedHost>& hosts) { resolved(hosts); }),
      timer_(loop.get(), [this] { timer_fired(); }),
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
  fleet_.start(input_.hosts.size());
}

Status JobDriver::prepare(const std::vector<ResolvedHost>& hosts) {
  HVD_ASSIGN_OR_RETURN(plan_, plan_launch(hosts, input_.config.nics,
                                          {.own = interface_addresses(), .source_towards = source_address_towards}));
  HVD_ASSIGN_OR_RETURN(server_, rendezvous::Server::start({.secret = secret_,
                                                           .listen_addresses = plan_.listen_addresses,
                                                           .num_proc = input_.config.num_proc}));
  if (input_.config.verbose > 0) {
    for (std::size_t agent = 0; agent < input_.hosts.size(); ++agent) describe_launch(static_cast<int>(agent));
  }
  return Status::ok();
}

AgentLinkOptions JobDriver::link_options(int agent) {
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
  return options;
}

void JobDriver::describe_launch(int agent) {
  const auto index = static_cast<std::size_t>(agent);
  output_.message(launch_text(input_.hosts[index], input_.config.command, input_.env, link_options(agent).argv,
                              plan_.agents[index].rendezvous_addresses, server_->port()));
}

void JobDriver::launch() {
  for (std::size_t agent = 0; agent < input_.hosts.size(); ++agent) {
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
    fleet_.send(static_cast<int>(agent), FrameType::kLaunch, payload, true);
    explicit_bzero(payload.data(), payload.size());
  }
}

const std::string& JobDriver::host_name(int agent) const {
  return input_.hosts[static_cast<std::size_t>(agent)].host.name;
}

void JobDriver::fleet_frame(int agent, const Frame& frame) {
  const Status status = handle(agent, frame);
  if (status.is_ok()) return;
  fleet_.drop(agent);
  fleet_lost(agent, "host " + host_name(agent) + ": " + status.message());
}

void JobDriver::fleet_lost(int agent, const std::string& reason) {
  apply(job_.agent_lost(agent, reason, SteadyClock::now()));
}

// An agent may speak only of the ranks that it was given.
Status JobDriver::check_rank(int agent, int rank) const {
  if (rank >= 0 && static_cast<std::size_t>(rank) < agent_of_rank_.size() &&
      agent_of_rank_[static_cast<std::size_t>(rank)] == agent) {
    return Status::ok();
  }
  return Status::invalid_argument("its agent speaks of rank " + std::to_string(rank) + ", which is not there");
}

Status JobDriver::handle(int agent, const Frame& frame) {
  switch (frame.type) {
    case FrameType::kHello:
      return handle_hello(agent, frame);
    case FrameType::kOutput:
    case FrameType::kOutputEnd:
      return handle_output(agent, frame);
    case FrameType::kRankStarted:
    case FrameType::kRankNotStarted:
    case FrameType::kRankExited:
    case FrameType::kRankFailing:
      return handle_rank(agent, frame);
    case FrameType::kNotice: {
      HVD_ASSIGN_OR_RETURN(const TextMessage message, decode_text(frame.payload));
      output_.message("host " + host_name(agent) + ": " + message.text);
      return Status::ok();
    }
    case FrameType::kError: {
      HVD_ASSIGN_OR_RETURN(const TextMessage message, decode_text(frame.payload));
      return Status::internal("its agent says: " + message.text);
    }
    case FrameType::kDone:
      fleet_.close_lease(agent);
      apply(job_.agent_done(agent, SteadyClock::now()));
      return Status::ok();
    default:
      return Status::invalid_argument("its agent sent a frame that only the launcher sends");
  }
}

Status JobDriver::handle_hello(int agent, const Frame& frame) {
  HVD_ASSIGN_OR_RETURN(const HelloMessage message, decode_hello(frame.payload));
  if (message.version != HVD_VERSION) {
    return Status::precondition("the agent there is of version " + message.version + ", this is " + HVD_VERSION +
                                ": install the same version on all hosts");
  }
  apply(job_.agent_ready(agent, SteadyClock::now()));
  return Status::ok();
}

Status JobDriver::handle_output(int agent, const Frame& frame) {
  if (frame.type == FrameType::kOutputEnd) {
    HVD_ASSIGN_OR_RETURN(const OutputEndMessage message, decode_output_end(frame.payload));
    HVD_RETURN_IF_ERROR(check_rank(agent, message.rank));
    output_.output_end(message.rank, message.is_stderr);
    return Status::ok();
  }
  HVD_ASSIGN_OR_RETURN(const OutputMessage message, decode_output(frame.payload));
  HVD_RETURN_IF_ERROR(check_rank(agent, message.rank));
  output_.output(message.rank, message.is_stderr, message.bytes);
  output_progress();
  return Status::ok();
}

Status JobDriver::handle_rank(int agent, const Frame& frame) {
  const TimePoint now = SteadyClock::now();
  if (frame.type == FrameType::kRankStarted) {
    HVD_ASSIGN_OR_RETURN(const RankStartedMessage message, decode_rank_started(frame.payload));
    HVD_RETURN_IF_ERROR(check_rank(agent, message.rank));
    apply(job_.rank_started(message.rank, message.pid, now));
  } else if (frame.type == FrameType::kRankNotStarted) {
    HVD_ASSIGN_OR_RETURN(const RankNotStartedMessage message, decode_rank_not_started(frame.payload));
    HVD_RETURN_IF_ERROR(check_rank(agent, message.rank));
    apply(job_.rank_not_started(message.rank, message.code, message.reason, now));
  } else if (frame.type == FrameType::kRankFailing) {
    HVD_ASSIGN_OR_RETURN(const RankFailingMessage message, decode_rank_failing(frame.payload));
    HVD_RETURN_IF_ERROR(check_rank(agent, message.rank));
    message.is_leaving ? job_.rank_leaving(message.rank) : job_.rank_failing(message.rank);
  } else {
    HVD_ASSIGN_OR_RETURN(const RankExitedMessage message, decode_rank_exited(frame.payload));
    HVD_RETURN_IF_ERROR(check_rank(agent, message.rank));
    apply(job_.rank_exited(message.rank, {.code = message.code, .signal = message.signal}, now));
  }
  return Status::ok();
}

void JobDriver::signal_received(int signal) { apply(job_.signal_received(signal, SteadyClock::now())); }

void JobDriver::output_broken(const Status& status) {
  apply(job_.stop("nobody takes the output any more (" + status.message() + ")", kOutputGone, SteadyClock::now()));
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
  const std::string summary =
      failure ? error_summary(job_, output_.last_stderr_lines(failure->rank, kSummaryLines)) : "";
  if (!summary.empty()) output_.message(summary);
  report_limits_hit(code);
  timer_.stop();
  stop_when_flushed();
}

// A client that was turned away may be why the job failed; in a job that went well it is noise from a port scanner.
void JobDriver::report_limits_hit(int code) {
  if (server_ == nullptr || (code == 0 && input_.config.verbose == 0)) return;
  const std::string limits = server_->stats().limits_hit();
  if (!limits.empty()) output_.message("the rendezvous server turned clients away: " + limits);
}

void JobDriver::stop_when_flushed() {
  if (exit_code_ && output_.flushed()) loop_.stop();
}

}  // namespace hvd::launcher
