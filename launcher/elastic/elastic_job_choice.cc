// Which slots of the hosts are for ranks, and which for spares.
#include <algorithm>
#include <utility>

#include "launcher/elastic/elastic_job.h"

namespace hvd::launcher {

// The hosts in order, each with the indexes of its slots where there may be processes. Where a host has become smaller
// who lives keeps its slot, rather than one that is out of use keeps its number.
std::vector<HostSlots> ElasticJob::usable_places() const {
  std::vector<HostSlots> places;
  for (const HostSpec& spec : hosts_.usable()) {
    HostSlots host{.host = spec.name, .slots = {}, .node = spec.node};
    const auto lives = [&](int index) {
      const Slot* slot = slot_in({spec.name, index});
      return slot != nullptr && slot->has_process && !slot->leaves_until;
    };
    for (int index = 0; index < hosts_.most_slots(spec.name); ++index) {
      const Place place{spec.name, index};
      const bool is_out_of_use =
          is_given_up(place) || drained_.contains(place) || hosts_.is_slot_aside(spec.name, index);
      if (!is_out_of_use && (index < spec.slots || lives(index))) host.slots.push_back(index);
    }
    if (const auto most = static_cast<std::size_t>(spec.slots); host.slots.size() > most) {
      std::stable_partition(host.slots.begin(), host.slots.end(), lives);
      host.slots.resize(most);
      std::ranges::sort(host.slots);
    }
    if (!host.slots.empty()) places.push_back(std::move(host));
  }
  return places;
}

bool ElasticJob::is_given_up(const Place& place) const {
  const auto failed = failures_.find(place);
  return failed != failures_.end() && failed->second >= kMaxFailures;
}

// First -np ranks, then the spares, then more ranks. Who trains does not become a spare again.
int ElasticJob::rank_count(const std::vector<HostSlots>& places) const {
  const int have = size_of(places);
  const int most = std::min(have, limits_.max_num_proc);
  if (limits_.num_spares == 0) return most;
  int living = 0;
  for (const HostSlots& host : places) {
    for (const int index : host.slots) living += reluctance(host.host, index) == 0 ? 1 : 0;
  }
  return std::min(most, std::max({limits_.num_proc, have - limits_.num_spares, living}));
}

// How late a place is taken for a rank. First who belongs to the round; then spares that wait, best where a process was
// lost, so that the others there keep their local ranks; then those that start, and spares that do nothing at all.
int ElasticJob::reluctance(const std::string& host, int index) const {
  const Slot* slot = slot_in({host, index});
  if (slot == nullptr || !slot->has_process || slot->leaves_until) return 4;
  if (is_member(agents_.at(slot->agent).slots.at(index))) return 0;
  if (slot->stopped_since) return 5;
  if (!slot->is_waiting) return 3;
  const bool has_lost = std::ranges::any_of(members_, [&](const HostSlots& one) {
    return one.host == host &&
           std::ranges::any_of(one.slots, [this](int number) { return !slots_.at(number).has_process; });
  });
  return has_lost ? 1 : 2;
}

const ElasticJob::Slot* ElasticJob::slot_in(const Place& place) const {
  for (const auto& [number, agent] : agents_) {
    if (agent.host != place.first || agent.is_lost) continue;
    const auto found = agent.slots.find(place.second);
    if (found != agent.slots.end()) return &slots_.at(found->second);
  }
  return nullptr;
}

ElasticJob::Choice ElasticJob::choose() const {
  const std::vector<HostSlots> usable = usable_places();
  std::vector<Place> places;
  for (const HostSlots& host : usable) {
    for (const int index : host.slots) places.emplace_back(host.host, index);
  }
  const auto ranks = static_cast<std::size_t>(rank_count(usable));
  if (limits_.num_spares > 0) {
    std::ranges::stable_sort(places, {}, [this](const Place& place) { return reluctance(place.first, place.second); });
  }
  const std::size_t all = std::min(places.size(), ranks + static_cast<std::size_t>(limits_.num_spares));
  const auto at = [&places](std::size_t n) { return places.begin() + static_cast<std::ptrdiff_t>(n); };
  return {.ranks = in_order({at(0), at(ranks)}), .spares = in_order({at(ranks), at(all)})};
}

// Hosts in their order, and their slots so that who lives has the local rank with which it began, and so its GPU, while
// its host has so many; the others take the places that are left.
std::vector<HostSlots> ElasticJob::in_order(const std::set<Place>& places) const {
  std::vector<HostSlots> hosts;
  for (const HostSpec& spec : hosts_.usable()) {
    std::vector<int> others;
    std::map<int, int> at_home;
    std::size_t size = 0;
    for (auto at = places.lower_bound({spec.name, 0}); at != places.end() && at->first == spec.name; ++at, ++size) {
      const Slot* slot = slot_in(*at);
      const bool has_home = slot != nullptr && slot->has_process && !slot->leaves_until && slot->home >= 0;
      if (!has_home || !at_home.emplace(slot->home, at->second).second) others.push_back(at->second);
    }
    for (auto [home, index] : std::map<int, int>(at_home.lower_bound(static_cast<int>(size)), at_home.end())) {
      others.push_back(index);
      at_home.erase(home);
    }
    std::ranges::sort(others);
    HostSlots host{.host = spec.name, .slots = {}, .node = spec.node};
    auto next = others.begin();
    for (int place = 0; place < static_cast<int>(size); ++place) {
      host.slots.push_back(at_home.contains(place) ? at_home.at(place) : *next++);
    }
    if (!host.slots.empty()) hosts.push_back(std::move(host));
  }
  return hosts;
}

}  // namespace hvd::launcher
