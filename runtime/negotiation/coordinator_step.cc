// The half of Coordinator that decides: what each step releases, changes and warns of, and in which order.
#include <algorithm>
#include <utility>
#include <variant>

#include "runtime/base/check.h"
#include "runtime/negotiation/coordinator_impl.h"
#include "runtime/wire/codec.h"

namespace hvd::negotiation {

using wire::value;

void Coordinator::Impl::announce_evictions(std::vector<wire::DecisionItem>& items) {
  for (; !evicted.empty() && items.size() < wire::kMaxItems / 2; evicted.pop_front()) {
    items.emplace_back(wire::Evict{evicted.front()});
  }
}

// What is ready leaves before its set does. False when there was no room for all of it: the removal waits then.
bool Coordinator::Impl::release_before_removal(const wire::SetChange& change, TimePoint now, std::size_t& room,
                                               wire::Decision& decision) {
  SetNegotiation* set = change.kind == wire::SetChange::Kind::kRemove ? touch(change.set_id) : nullptr;
  if (set == nullptr) return true;
  const std::size_t before = decision.items.size();
  set->release(now, true, next_bit, room, decision.items);
  enter_released(change.set_id, decision.items, before);
  return !set->has_ready();
}

void Coordinator::Impl::apply_set_changes(TimePoint now, std::size_t& room, wire::Decision& decision) {
  while (decision.items.size() < wire::kMaxItems) {
    const wire::SetChange* agreed = registry.agreed();
    // The global set is not removed: that is an error, and its operations go on.
    if (agreed != nullptr && agreed->set_id != kGlobalProcessSet &&
        !release_before_removal(*agreed, now, room, decision))
      return;
    std::optional<wire::SetDecision> change = decision.items.size() < wire::kMaxItems ? registry.next() : std::nullopt;
    if (!change) return;
    for (const wire::SetDecision::Entry& entry : change->entries) {
      if (change->kind == wire::SetChange::Kind::kRemove) {
        touch(entry.id);
        sets.erase(entry.id);
        std::erase_if(set_of_bit, [&](const auto& bit) { return bit.second == entry.id; });
      } else if (!entry.existed) {
        sets.try_emplace(entry.id, registry.sets()->share(entry.id), options);
      }
    }
    const std::size_t size = wire::encoded_size_bound(*change);
    decision.items.emplace_back(std::move(*change));
    if (size >= room) return;  // the next one goes into another message
    room -= size;
  }
}

void Coordinator::Impl::look_for_stalls(TimePoint now) {
  const auto is_due = [now](std::optional<TimePoint> due) { return due && *due <= now; };
  if (is_due(change_stall.next_deadline(registry.oldest()))) record(change_stall.look(registry.waiting(), now));
  for (const std::int32_t id : stalls.due(now)) record(touch(id)->look_for_stalls(now));
  reschedule();
  record(board.look_at_collectives(now));
  if (ready.empty() && board.every_rank_waits(next_sequence - 1)) record({.warning = board.deadlock()});
}

void Coordinator::Impl::record(StallVerdict verdict) {
  if (!verdict.warning.empty()) {
    notes.push_back({.text = std::move(verdict.warning), .waits_for = verdict.waits_for});
  }
  if (verdict.shutdown.empty()) return;
  notes.push_back({.level = Note::Level::kError, .text = verdict.shutdown});
  if (!stop_wanted) stop_wanted = wire::Stop{wire::Stop::Kind::kStall, verdict.rank, std::move(verdict.shutdown)};
}

void Coordinator::Impl::release_ready(TimePoint now, std::size_t& room, wire::Decision& decision) {
  const bool flush = stop_wanted.has_value();
  for (const std::int32_t id : flush ? std::vector(ready.begin(), ready.end()) : releases.due(now)) {
    const std::size_t before = decision.items.size();
    touch(id)->release(now, flush, next_bit, room, decision.items);
    enter_released(id, decision.items, before);
  }
}

// Enters what a set released: the bits that it gave out and took back.
void Coordinator::Impl::enter_released(std::int32_t id, const std::vector<wire::DecisionItem>& items,
                                       std::size_t from) {
  for (std::size_t i = from; i < items.size(); ++i) {
    if (const auto* eviction = std::get_if<wire::Evict>(&items[i])) set_of_bit.erase(value(eviction->bit));
    const auto* response = std::get_if<wire::Response>(&items[i]);
    if (response != nullptr && response->bit != CacheBit::kNone) set_of_bit[value(response->bit)] = id;
  }
  warn_of_small_cache(id, sets.at(id));
}

void Coordinator::Impl::warn_of_small_cache(std::int32_t id, SetNegotiation& set) {
  if (!set.take_small_cache()) return;
  notes.push_back({.text = "The response cache" + topology::of_set(id) + " has room for " +
                           std::to_string(options.cache_capacity) +
                           " tensors, and more than that come again: those without room cost more at every step. A "
                           "larger HOROVOD_CACHE_CAPACITY avoids that."});
}

// A lost rank ends the session at once, without what is ready: its data connections are broken. Everything else keeps
// the order of the report: stalls are judged on the state before this step; evictions leave before the responses that
// reuse their names; what is ready leaves before a change that may remove its set; and a stop waits until all of it has
// left.
std::optional<wire::Decision> Coordinator::Impl::step(TimePoint now) {
  if (stopped) return std::nullopt;
  wire::Decision decision;
  decision.limits = options.limits;
  if (stop_wanted && stop_wanted->kind == wire::Stop::Kind::kAbort) {
    decision.stop = std::move(stop_wanted);
    return finish(std::move(decision));
  }
  std::size_t room = wire::kMessageByteBudget;
  look_for_stalls(now);
  for (const std::uint64_t context : board.take_answers()) decision.items.emplace_back(wire::WaitAnswer{context});
  announce_evictions(decision.items);
  if (evicted.empty()) {  // a bit's eviction comes before its name's next response
    release_ready(now, room, decision);
    apply_set_changes(now, room, decision);
  }
  reschedule();
  const auto answers = [](const wire::DecisionItem& item) { return std::holds_alternative<wire::WaitAnswer>(item); };
  if (std::ranges::all_of(decision.items, answers) && !decision.items.empty()) board.only_answers(next_sequence);
  const bool drained = evicted.empty() && ready.empty();
  if (stop_wanted && drained) decision.stop = std::move(stop_wanted);
  if (decision.items.empty() && !decision.stop) return std::nullopt;
  return finish(std::move(decision));
}

std::optional<wire::Decision> Coordinator::Impl::finish(wire::Decision decision) {
  decision.sequence = next_sequence++;
  stopped = decision.stop.has_value();
  const Status followed = bits.on_decision(decision);
  HVD_CHECK(followed.is_ok(), "the coordinator cannot follow its own decision");
  return decision;
}

std::optional<TimePoint> Coordinator::Impl::next_deadline() const {
  std::optional<TimePoint> next;
  if (stopped) return next;
  const auto consider = [&next](std::optional<TimePoint> when) {
    if (when && (!next || *when < *next)) next = when;
  };
  consider(change_stall.next_deadline(registry.oldest()));
  consider(releases.next());
  consider(stalls.next());
  consider(board.next_deadline());
  return next;
}

}  // namespace hvd::negotiation
