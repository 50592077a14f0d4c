#include "launcher/elastic/host_book.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "launcher/hosts/host_spec.h"

namespace hvd::launcher {
namespace {

constexpr int kMaxDoublings = 30;

}  // namespace

HostBook::HostBook(std::optional<CooldownRange> cooldown, std::function<double()> random)
    : cooldown_(std::move(cooldown)), random_(std::move(random)) {}

int HostBook::update(const std::vector<HostSpec>& listed) {
  int change = kNoHostChange;
  std::map<std::string, HostSpec> now;
  for (const HostSpec& host : listed) now[host.name] = host;
  for (auto& [name, host] : hosts_) {
    if (!host.spec || now.contains(name)) continue;
    host.spec.reset();
    std::erase(order_, name);
    if (!is_aside(host)) change |= kHostRemoved;
    host.is_drained = false;
  }
  for (const HostSpec& spec : listed) {
    Host& host = hosts_[spec.name];
    const int before = host.spec ? host.spec->slots : 0;
    if (!host.spec) order_.push_back(spec.name);
    host.spec = spec;
    host.most_slots = std::max(host.most_slots, spec.slots);
    if (is_aside(host) || spec.slots == before) continue;
    change |= spec.slots > before ? kHostAdded : kHostRemoved;
  }
  return change;
}

void HostBook::begin(Cooldown& cooldown, TimePoint now) {
  if (std::exchange(cooldown.is_aside, true)) return;
  cooldown.times = std::min(cooldown.times + 1, kMaxDoublings);
  if (!cooldown_) return;
  const auto [lo, hi] = *cooldown_;
  const double delay = static_cast<double>(lo.count()) * (std::exp2(cooldown.times) + random_());
  cooldown.until = now + std::clamp(Millis(static_cast<std::int64_t>(std::min(delay, 1e15))), lo, hi);
}

bool HostBook::end(Cooldown& cooldown, TimePoint now) {
  if (!cooldown.is_aside || !cooldown.until || now < *cooldown.until) return false;
  cooldown.is_aside = false;
  cooldown.until.reset();
  return true;
}

void HostBook::set_aside(const std::string& name, TimePoint now) {
  if (Host& host = hosts_[name]; !host.is_drained) begin(host.cooldown, now);
}

void HostBook::set_slot_aside(const std::string& name, int index, TimePoint now) {
  begin(hosts_[name].slots[index], now);
}

void HostBook::set_aside_until_relisted(const std::string& name) {
  Host& host = hosts_[name];
  if (host.spec) host.is_drained = true;  // else it has left the list already
}

int HostBook::end_cooldowns(TimePoint now) {
  int change = kNoHostChange;
  for (auto& [name, host] : hosts_) {
    for (auto& [index, slot] : host.slots) {
      if (end(slot, now) && is_usable(name)) change |= kHostAdded;
    }
    if (!end(host.cooldown, now) || !host.spec || host.is_drained) continue;
    move_to_end(name);
    change |= kHostAdded;
  }
  return change;
}

void HostBook::move_to_end(const std::string& name) {
  std::erase(order_, name);
  order_.push_back(name);
}

bool HostBook::is_usable(const std::string& name) const {
  const auto found = hosts_.find(name);
  return found != hosts_.end() && found->second.spec && !is_aside(found->second);
}

bool HostBook::is_slot_aside(const std::string& name, int index) const {
  const std::map<int, Cooldown>& slots = hosts_.at(name).slots;
  const auto found = slots.find(index);
  return found != slots.end() && found->second.is_aside;
}

std::vector<HostSpec> HostBook::usable() const {
  std::vector<HostSpec> hosts;
  for (const std::string& name : order_) {
    if (is_usable(name)) hosts.push_back(*hosts_.at(name).spec);
  }
  put_nodes_together(hosts);
  return hosts;
}

std::optional<TimePoint> HostBook::next_return() const {
  std::optional<TimePoint> next;
  const auto consider = [&next](const Cooldown& one) {
    if (one.is_aside && one.until && (!next || *one.until < *next)) next = one.until;
  };
  for (const auto& [name, host] : hosts_) {
    consider(host.cooldown);
    for (const auto& [index, slot] : host.slots) consider(slot);
  }
  return next;
}

std::string HostBook::text_of(const Cooldown& cooldown, TimePoint now) {
  if (!cooldown.until) return "for good";
  return "for " + std::to_string(std::chrono::ceil<std::chrono::seconds>(*cooldown.until - now).count()) + " s";
}

std::string HostBook::how_long(const std::string& name, TimePoint now) const {
  const Host& host = hosts_.at(name);
  return host.is_drained && !host.cooldown.is_aside ? "until it is listed anew" : text_of(host.cooldown, now);
}

std::string HostBook::how_long(const std::string& name, int index, TimePoint now) const {
  return text_of(hosts_.at(name).slots.at(index), now);
}

}  // namespace hvd::launcher
