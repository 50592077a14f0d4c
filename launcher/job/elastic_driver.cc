#include "launcher/job/elastic_driver.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "rendezvous/protocol/bodies.h"
#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

std::int64_t wall_clock_ms() {
  return std::chrono::duration_cast<Millis>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

ElasticLimits elastic_limits(const LaunchConfig& config) {
  const ElasticConfig& elastic = *config.elastic;
  ElasticLimits limits;
  limits.num_proc = config.num_proc;
  limits.min_num_proc = elastic.min_num_proc;
  limits.max_num_proc = elastic.max_num_proc;
  limits.num_spares = elastic.num_spares;
  limits.sets_aside = elastic.sets_aside;
  limits.replace_stuck = elastic.replace_stuck;
  limits.reset_limit = elastic.reset_limit;
  limits.hosts_call_in = config.gather.has_value();
  limits.hosts_are_fixed =
      !limits.hosts_call_in && elastic.discovery_script.empty() && elastic.watched_hostfile.empty();
  limits.slots_timeout = elastic.timeout;
  limits.host_timeout = config.start_timeout;
  if (config.kill_grace) limits.leave_timeout = *config.kill_grace;
  limits.grace = elastic.grace;
  limits.cooldown = elastic.cooldown;
  return limits;
}

ElasticDriver::ElasticDriver(MainLoop& loop, const LaunchConfig& config, ElasticRun& job, Launch& launch,
                             HostGathering* callers, Callbacks callbacks)
    : config_(config),
      job_(job),
      launch_(launch),
      callbacks_(std::move(callbacks)),
      mailbox_(loop),
      callers_(callers),
      discovery_(loop,
                 {.script = config.elastic->discovery_script,
                  .hostfile = config.elastic->watched_hostfile,
                  .fixed = config.hosts,
                  .default_slots = config.elastic->default_slots,
                  .ssh_program = ssh_client_of(config),
                  .lookup_patience = Millis(config.start_timeout) / 2,
                  .first_limit = config.elastic->timeout},
                 {.on_hosts = [this](const auto& hosts, const auto& addresses) { hosts_found(hosts, addresses); },
                  .on_failure = [this](const std::string& why) { discovery_failed(why); }}) {}

void ElasticDriver::start() {
  if (callers_ == nullptr) return discovery_.start();
  callers_->watch([this] { callers_changed(); });
  callers_changed();
}

void ElasticDriver::stop() {
  if (callers_ != nullptr) callers_->end();
  discovery_.stop();
}

void ElasticDriver::callers_changed() {
  std::vector<HostSpec> hosts;
  std::map<std::string, ResolvedHost> addresses;
  for (const CalledHost& host : callers_->hosts()) {
    hosts.push_back(spec_of(host, config_.elastic->default_slots));
    addresses[host.name] = {.addresses = {host.address}};
    if (has_listed_ && !addresses_.contains(host.name)) callbacks_.print("host " + host.name + " has called in");
  }
  hosts_found(hosts, addresses);
}

void ElasticDriver::hosts_found(const std::vector<HostSpec>& hosts,
                                const std::map<std::string, ResolvedHost>& addresses) {
  HVD_FAILPOINT("elastic.hosts");
  addresses_ = addresses;
  has_listed_ = true;
  last_failure_.clear();
  // Where to listen follows from the hosts: so far there is nobody to meet.
  if (!plan_ && !hosts.empty()) {
    if (const Status status = prepare(hosts); !status.is_ok()) return callbacks_.give_up(status);
  }
  if (plan_) {
    // Before anybody hears of the hosts: ranks that join from then on listen for them.
    const Status status = launch_.listen_for(resolved(hosts));
    if (std::exchange(last_refusal_, status.message()) != status.message() && !status.is_ok()) {
      callbacks_.print(status.message());
    }
  }
  callbacks_.apply(job_.hosts_found(hosts, SteadyClock::now()));
}

// The first run has to succeed, or the script is wrong. Later a name server or a cloud may be down for a while.
void ElasticDriver::discovery_failed(const std::string& why) {
  if (!has_listed_) return callbacks_.give_up(Status::internal(why));
  if (std::exchange(last_failure_, why) != why)
    callbacks_.print(why + "; the job goes on with the hosts that it knows");
}

std::vector<ResolvedHost> ElasticDriver::resolved(const std::vector<HostSpec>& hosts) const {
  std::vector<ResolvedHost> resolved;
  resolved.reserve(hosts.size());
  for (const HostSpec& host : hosts) resolved.push_back(addresses_.at(host.name));
  return resolved;
}

Status ElasticDriver::prepare(const std::vector<HostSpec>& hosts) {
  HVD_FAILPOINT_RETURN("elastic.prepare");
  return launch_.prepare_elastic(resolved(hosts), [this](std::shared_ptr<const CurrentSeats> seats) {
    const auto now = [] { return SteadyClock::now(); };
    plan_ = std::make_shared<ElasticPlan>(
        config_.elastic->max_num_proc, config_.elastic->num_spares, std::move(seats),
        ElasticPlan::Events{.on_waiting =
                                [this, now](rendezvous::Incarnation process, std::uint64_t progress) {
                                  mailbox_.post([this, now, process, progress] {
                                    HVD_FAILPOINT("elastic.waiting");
                                    callbacks_.apply(job_.process_waiting(process, progress, now()));
                                  });
                                },
                            .on_began =
                                [this, now](const std::map<int, Placement>& ranks) {
                                  mailbox_.post([this, now, ranks] {
                                    HVD_FAILPOINT("elastic.began");
                                    news_ = 0;
                                    const JobActions actions = job_.round_began(ranks, now());
                                    callbacks_.on_round(ranks);
                                    callbacks_.apply(actions);
                                  });
                                }});
    return plan_;
  });
}

const ResolvedHost& ElasticDriver::addresses_of(const std::string& host) const {
  static const ResolvedHost kUnknown;
  const auto found = addresses_.find(host);
  return found == addresses_.end() ? kUnknown : found->second;
}

Status ElasticDriver::draining(int agent, const DrainingMessage& message) {
  const TimePoint now = SteadyClock::now();
  if (message.slot == SignalMessage::kAllSlots) {
    callbacks_.apply(job_.host_draining(agent, now));
    return Status::ok();
  }
  const auto& slots = job_.roster().slots();
  const auto slot = slots.find(message.slot);
  if (slot == slots.end() || slot->second.agent != agent) {
    return Status::invalid_argument("its agent speaks of slot " + std::to_string(message.slot) +
                                    ", which is not there");
  }
  callbacks_.apply(job_.process_draining({message.slot, slot->second.incarnation}, now));
  return Status::ok();
}

bool ElasticDriver::apply(const JobAction& action) {
  switch (action.kind) {
    case JobAction::Kind::kOffer:
      HVD_FAILPOINT("elastic.offer");
      plan_->offer(action.members);
      launch_.server().reconsider();
      return true;
    case JobAction::Kind::kWithdraw:
      if (plan_->withdraw()) callbacks_.apply(job_.offer_withdrawn(SteadyClock::now()));
      return true;
    case JobAction::Kind::kNotify: notify(action.code); return true;
    case JobAction::Kind::kTellLoss:
      HVD_FAILPOINT("elastic.loss");
      // To the epoch that is, whether or not its beginning has been reported; of several losses the first counts.
      launch_.server().publish(rendezvous::kLossScope, rendezvous::kLossKey,
                               Bytes(action.text.begin(), action.text.end()));
      return true;
    default: return false;
  }
}

void ElasticDriver::notify(int change) {
  last_news_ms_ = std::max(last_news_ms_ + 1, wall_clock_ms());  // who hears of several tells them apart by the time
  launch_.server().publish(rendezvous::kHostNewsScope, std::to_string(++news_),
                           rendezvous::encode_host_news({.time_ms = last_news_ms_, .change = change}));
}

}  // namespace hvd::launcher
