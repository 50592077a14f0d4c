#include "launcher/elastic/host_book.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
    if (!host.is_aside) change |= kHostRemoved;
    if (std::exchange(host.is_drained, false)) host.is_aside = false;
  }
  for (const HostSpec& spec : listed) {
    Host& host = hosts_[spec.name];
    const int before = host.spec ? host.spec->slots : 0;
    if (!host.spec) order_.push_back(spec.name);
    host.spec = spec;
    if (host.is_aside || spec.slots == before) continue;
    change |= spec.slots > before ? kHostAdded : kHostRemoved;
  }
  return change;
}

void HostBook::set_aside(const std::string& name, TimePoint now) {
  Host& host = hosts_[name];
  if (host.is_aside) return;
  host.is_aside = true;
  host.times_aside = std::min(host.times_aside + 1, kMaxDoublings);
  if (!cooldown_) return;
  const auto [lo, hi] = *cooldown_;
  const double delay = static_cast<double>(lo.count()) * (std::exp2(host.times_aside) + random_());
  host.until = now + std::clamp(Millis(static_cast<std::int64_t>(std::min(delay, 1e15))), lo, hi);
}

void HostBook::set_aside_until_relisted(const std::string& name) {
  Host& host = hosts_[name];
  if (!host.spec) return;  // it has left the list already
  host.is_aside = host.is_drained = true;
  host.until.reset();
}

int HostBook::end_cooldowns(TimePoint now) {
  int change = kNoHostChange;
  for (auto& [name, host] : hosts_) {
    if (!host.is_aside || !host.until || now < *host.until) continue;
    host.is_aside = false;
    host.until.reset();
    if (!host.spec) continue;
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
  return found != hosts_.end() && found->second.spec && !found->second.is_aside;
}

std::vector<HostSpec> HostBook::usable() const {
  std::vector<HostSpec> hosts;
  for (const std::string& name : order_) {
    if (is_usable(name)) hosts.push_back(*hosts_.at(name).spec);
  }
  return hosts;
}

std::optional<TimePoint> HostBook::next_return() const {
  std::optional<TimePoint> next;
  for (const auto& [name, host] : hosts_) {
    if (host.is_aside && host.until && (!next || *host.until < *next)) next = host.until;
  }
  return next;
}

std::string HostBook::how_long(const std::string& name, TimePoint now) const {
  const Host& host = hosts_.at(name);
  if (host.is_drained) return "until it is listed anew";
  if (!host.until) return "for good";
  return "for " + std::to_string(std::chrono::ceil<std::chrono::seconds>(*host.until - now).count()) + " s";
}

}  // namespace hvd::launcher
