#include "launcher/job/job_driver.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "launcher/job/static_job.h"
#include "launcher/process/own_process.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/wipe.h"

namespace hvd::launcher {
namespace {

constexpr Millis kMaxLookup{10000};
constexpr std::string_view kUnread =
    "nobody reads the output of horovodrun: until somebody does, its agents are not heard\n";

std::vector<std::string> host_names(const std::vector<HostAssignment>& hosts) {
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const HostAssignment& host : hosts) names.push_back(host.host.name);
  return names;
}

JobTimings timings_of(const LaunchConfig& config) {
  JobTimings timings;
  timings.start = config.start_timeout;
  timings.limit = config.timeout;
  if (config.kill_grace) timings.term = timings.interrupt = *config.kill_grace;
  return timings;
}

RankName name_of(const Roster& roster, int number) {
  const Placement& placement = roster.slot(number).placement;
  return {.rank = placement.rank, .local_rank = placement.local_rank, .host = roster.host_of(number)};
}

std::map<int, RankName> names_of(const Roster& roster) {
  std::map<int, RankName> names;
  for (const auto& [number, slot] : roster.slots()) names[number] = name_of(roster, number);
  return names;
}

double random_part() {
  std::array<std::uint8_t, 1> random{};
  crypto::random_bytes(random);
  return random[0] / 255.0;
}

std::unique_ptr<Job> make_job(const JobPlan& plan) {
  if (!plan.config.elastic) {
    return std::make_unique<StaticJob>(plan.hosts, timings_of(plan.config), SteadyClock::now());
  }
  return std::make_unique<ElasticRun>(elastic_limits(plan.config), random_part, timings_of(plan.config));
}

// Half of the time to start is for the agents.
Millis lookup_patience(const LaunchConfig& config) { return std::min(kMaxLookup, Millis(config.start_timeout) / 2); }

// And of the rest a part is for those that are started from here after all.
Millis tree_patience(const LaunchConfig& config) { return Millis(config.start_timeout) / 4; }

}  // namespace

JobDriver::JobDriver(MainLoop& loop, JobPlan plan, const OwnStart& start, HostGathering* callers)
    : loop_(loop),
      plan_(std::move(plan)),
      launch_(plan_, start),
      callers_(callers),
      job_(make_job(plan_)),
      output_(loop,
              {.ranks = names_of(job_->roster()), .look = plan_.config.output, .prompts = plan_.config.input_asked_for},
              {.on_progress = [this] { output_progress(); },
               .on_broken = [this](const Status& status) { output_broken(status); }}),
      stacks_(loop, [this] { return ask_for_stacks(); }),
      fleet_(
          loop, [this](int agent) { return link_options(agent); }, static_cast<AgentFleetEvents&>(*this),
          tree_patience(plan_.config)),
      input_forwarder_(loop, plan_.config.elastic && plan_.config.input_to == InputTo::kAll,
                       {.send = [this](int slot, ByteSpan bytes) { send_input(slot, bytes); },
                        .on_line_typed = [this] { output_.line_was_typed(); },
                        .on_too_much = [this] { input_too_large(); }}),
      resolver_(loop, host_names(plan_.hosts), ssh_client_of(plan_.config), lookup_patience(plan_.config),
                [this](const std::vector<ResolvedHost>& hosts) { resolved(hosts); }),
      timer_(loop.get(), [this] { timer_fired(); }),
      start_timer_(loop.get(), [this] { show_start(); }),
      flush_timer_(loop.get(), [this] { give_up_flushing(); }),
      suspend_timer_(loop.get(), [this] { suspend(); }),
      broken_timer_(loop.get(), [this] { end_for_output(); }),
      signals_(loop, without(start.ignored_signals, {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}),
               [this](int signal) { signal_received(signal); }),
      events_(::getpid(),
              plan_.config.events ? [this](const std::string& line) { write_event(line); } : JobEvents::Write()) {
  if (!plan_.config.elastic) return;
  elastic_.emplace(
      loop, plan_.config, static_cast<ElasticRun&>(*job_), launch_, callers_,
      ElasticDriver::Callbacks{.apply = [this](const JobActions& actions) { apply(actions); },
                               .on_round = [this](const std::map<int, Placement>& ranks) { note_round(ranks); },
                               .print = [this](const std::string& text) { output_.message(text); },
                               .give_up = [this](const Status& why) { give_up(why); }});
}

int JobDriver::run() {
  for (const std::string& notice : plan_.config.notices) output_.message(notice);
  if (open_outputs()) {
    events_.job_started(plan_.config, plan_.hosts);
    if (elastic_ && plan_.config.verbose > 0) output_.message(launch_text(plan_));
    elastic_ ? elastic_->start() : find_hosts();
    open_socket();
    if (!elastic_) start_timer_.start(output_.has_terminal() ? kStartLine : kStartMessage);
    arm_timer();
  }
  // The loop stops when something may have become the end: the last byte taken, or patience lost.
  while (!over()) loop_.run();
  return *exit_code_;
}

void JobDriver::find_hosts() {
  if (callers_ == nullptr) return resolver_.start();
  std::vector<ResolvedHost> hosts;
  for (const CalledHost& host : callers_->hosts()) hosts.push_back({.addresses = {host.address}});
  resolved(hosts);
}

AgentLinkOptions JobDriver::link_options(int agent) {
  AgentLinkOptions options = launch_.link_options(agent);
  if (callers_ != nullptr) options.joined = callers_->take(host_name(agent));
  return options;
}

void JobDriver::resolved(const std::vector<ResolvedHost>& hosts) {
  if (exit_code_) return;
  const Status status = launch_.prepare(hosts, job_->roster());
  if (!status.is_ok()) return give_up(status);
  if (plan_.config.verbose > 0) {
    for (const std::string& text : launch_.description()) output_.message(text);
  }
  for (const auto& [agent, record] : job_->roster().agents()) fleet_.start(agent, launch_.parent(agent));
}

// A job runs as well without anybody who can ask it.
void JobDriver::open_socket() {
  auto socket = JobSocket::open(
      loop_, [this](const std::string& word, const JobSocket::Reply& reply) { return answer(word, reply); });
  if (socket.is_ok()) {
    socket_ = std::move(socket).value();
  } else {
    output_.message(socket.status().message());
  }
}

std::set<int> JobDriver::ask_for_stacks() {
  std::set<int> asked;
  for (const auto& [agent, record] : job_->roster().agents()) {
    if (record.state == Roster::AgentState::kReady) asked.insert(agent);
  }
  for (const int agent : asked) fleet_.send(agent, FrameType::kAskStacks, {});
  return asked;
}

// A rank may stall for hours, and is reported at each look; what it does is asked by who wants to know.
void JobDriver::show_stall(int rank) {
  for (const auto& [number, slot] : job_->roster().slots()) {
    const Incarnation process{.slot = number, .number = slot.incarnation};
    if (slot.placement.rank != rank || slot.state != Roster::SlotState::kRunning || stalled_ == process) continue;
    stalled_ = process;
    if (const ProcessRecord* record = ledger_.running(process)) events_.rank_stalled(*record);
    output_.message("others wait for rank " + std::to_string(rank) + " on host " + host_name(slot.agent) + " (pid " +
                    std::to_string(slot.pid) + "); `horovodrun --stacks " + std::to_string(::getpid()) +
                    "` on this host says where it stands");
  }
}

bool JobDriver::answer(const std::string& word, const JobSocket::Reply& reply) {
  if (word == "stacks" && congested()) {
    reply(std::string(kUnread), false);
  } else if (word == "stacks") {
    stacks_.ask([this, reply](const std::string& text, bool complete) {
      reply(!complete && congested() ? text + std::string(kUnread) : text, complete);
    });
  } else if (word == "status") {
    reply(status_json({.pid = ::getpid(),
                       .command = plan_.config.command,
                       .state = job_->state_text(),
                       .is_elastic = plan_.config.elastic.has_value(),
                       .output_waits = congested(),
                       .roster = job_->roster(),
                       .spares = job_->spares(),
                       .rounds = job_->rounds(),
                       .now = SteadyClock::now()}),
          true);
  } else {
    return false;
  }
  return true;
}

void JobDriver::show_start() {
  const std::string text = exit_code_ ? "" : job_->roster().name_missing_hosts();
  output_.status(text);
  if (text.empty()) return;
  if (!output_.has_terminal()) output_.message(text);
  start_timer_.start(output_.has_terminal() ? kStartLine : kStartMessage);
}

void JobDriver::send_launch_frame(int agent) {
  if (fleet_.is_relayed(agent)) return fleet_.send(agent, FrameType::kLaunchBelow, launch_.launch_below_frame(agent));
  Bytes payload = launch_.launch_frame(agent);
  fleet_.send(agent, FrameType::kLaunch, payload, true);
  wipe(payload);
}

void JobDriver::open_agent(const JobAction& action) {
  const Status status = launch_.add_agent(action.agent, action.host, elastic_->addresses_of(action.host.name));
  if (status.is_ok()) return fleet_.start(action.agent);
  lose_agent(action.agent, status.message());
  if (callers_ != nullptr) callers_->turn_away(action.host.name);
}

void JobDriver::stop_slot(const JobAction& action) {
  const int number = action.process.slot;
  const Roster::Slot& slot = job_->roster().slot(number);
  const Millis grace = action.at_once ? Millis(0) : timings_of(plan_.config).term;
  fleet_.send(slot.agent, FrameType::kStop,
              encode(StopMessage{.slot = number, .grace_ms = static_cast<std::uint32_t>(grace.count())}));
}

void JobDriver::close_agent(int agent) {
  if (job_->roster().agent(agent).state == Roster::AgentState::kReady) {
    return fleet_.send(agent, FrameType::kShutdown, encode(ShutdownMessage{.at_once = true}));
  }
  fleet_.drop(agent);
  apply(job_->agent_lost(agent, "", SteadyClock::now()));
  agent_gone(agent);
}

void JobDriver::lose_agent(int agent, const std::string& reason) {
  const TimePoint now = SteadyClock::now();
  note_loss(agent, reason, now);
  apply(job_->agent_lost(agent, reason, now));
}

// Its host may call in again.
void JobDriver::agent_gone(int agent) {
  if (callers_ != nullptr) callers_->let_go(host_name(agent));
}

void JobDriver::start(Incarnation process) {
  const Roster::Slot& slot = job_->roster().slot(process.slot);
  output_.set_rank(process.slot, name_of(job_->roster(), process.slot));
  const bool has_input = launch_.give_input(slot.placement.rank);
  if (has_input) input_forwarder_.add(process.slot);
  fleet_.send(slot.agent, FrameType::kStart, launch_.start_frame(process, slot, has_input));
}

const std::string& JobDriver::host_name(int agent) const { return job_->roster().agent(agent).host; }

void JobDriver::send_input(int slot, ByteSpan bytes) {
  const Roster::Slot& record = job_->roster().slot(slot);
  const Incarnation process{.slot = slot, .number = record.incarnation};
  do {  // no bytes are a message as well
    const ByteSpan piece = bytes.first(std::min(bytes.size(), kMaxInputChunk));
    Bytes payload = encode(InputMessage{process, Bytes(piece.begin(), piece.end())});
    fleet_.send(record.agent, FrameType::kInput, payload, true);
    wipe(payload);
    bytes = bytes.subspan(piece.size());
  } while (!bytes.empty());
}

void JobDriver::output_progress() {
  fleet_.pause(congested());
  if (elastic_ && elastic_->hears_agents(!congested())) arm_timer();
  stop_when_flushed();
}

void JobDriver::apply(const JobActions& actions) {
  actions_.insert(actions_.end(), actions.begin(), actions.end());
  if (std::exchange(applying_, true)) return;
  while (!actions_.empty()) {
    const JobAction action = std::move(actions_.front());
    actions_.pop_front();
    apply(action);
  }
  applying_ = false;
  arm_timer();
}

void JobDriver::apply(const JobAction& action) {
  note_action(action);
  if (elastic_ && elastic_->apply(action)) return;
  switch (action.kind) {
    case JobAction::Kind::kLaunch:
      if (action.agent >= 0) return send_launch_frame(action.agent);
      for (const auto& [agent, record] : job_->roster().agents()) send_launch_frame(agent);
      return;
    case JobAction::Kind::kStart: return start(action.process);
    case JobAction::Kind::kSignalAll:
      return fleet_.send_all(FrameType::kSignal, encode(SignalMessage{.signal = action.signal}));
    case JobAction::Kind::kShutdownAgents:
      fleet_.stop_connecting();
      if (callers_ != nullptr) callers_->end();
      return fleet_.send_all(FrameType::kShutdown, encode(ShutdownMessage{action.at_once}));
    case JobAction::Kind::kDropAgents: return fleet_.drop_all();
    case JobAction::Kind::kPrint: return output_.message(action.text);
    case JobAction::Kind::kFinish: return finish(action.code);
    case JobAction::Kind::kOpenAgent: return open_agent(action);
    case JobAction::Kind::kCloseAgent: return close_agent(action.agent);
    case JobAction::Kind::kStopSlot: return stop_slot(action);
    case JobAction::Kind::kRemoveSeat: return launch_.remove_seat(action.process, action.text);
    case JobAction::Kind::kOffer:
    case JobAction::Kind::kWithdraw:
    case JobAction::Kind::kNotify:
    case JobAction::Kind::kTellLoss: HVD_CHECK(false, "these are the elastic driver's");
  }
}

void JobDriver::arm_timer() {
  const auto deadline = job_->deadline();
  if (!deadline || exit_code_) return timer_.stop();
  timer_.start(std::max(Millis(0), std::chrono::ceil<Millis>(*deadline - SteadyClock::now())));
}

void JobDriver::timer_fired() {
  HVD_FAILPOINT("driver.timer");
  apply(job_->timer_fired(SteadyClock::now(), [this](int agent) { return fleet_.quoted_stderr(agent); }));
}

}  // namespace hvd::launcher
