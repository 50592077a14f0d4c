#include "runtime/negotiation/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/negotiation/agenda.h"
#include "runtime/negotiation/set_negotiation.h"
#include "runtime/negotiation/wait_board.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/limits.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::value;

struct Coordinator::Impl {
  explicit Impl(const CoordinatorOptions& o);

  Status add_report(int from_rank, const wire::Report& report, TimePoint now);
  void apply_set_changes(TimePoint now, std::size_t& room, wire::Decision& decision);
  void evict(CacheBit bit);
  void announce_evictions(std::vector<wire::DecisionItem>& items);
  void look_for_stalls(TimePoint now);
  void tell(StallVerdict verdict);
  void release_ready(TimePoint now, std::size_t& room, wire::Decision& decision);
  bool release_before_removal(const wire::SetChange& change, TimePoint now, std::size_t& room,
                              wire::Decision& decision);
  void follow(std::int32_t id, const std::vector<wire::DecisionItem>& items, std::size_t from);
  void warn_of_full_cache(std::int32_t id, SetNegotiation& set);
  SetNegotiation* touch(std::int32_t id);
  void refile();
  std::optional<wire::Decision> finish(wire::Decision decision);
  std::optional<wire::Decision> step(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  void add_ready_bit(CacheBit bit, TimePoint now);

  CoordinatorOptions options;
  SetRegistry registry;
  StallInspector change_stall;  // of requests to change the process sets
  WaitBoard board;
  BitCounter bits;
  std::map<std::int32_t, SetNegotiation> sets;
  // There may be thousands of sets, and most have nothing to do: a step looks at those alone that do.
  std::vector<std::int32_t> touched;  // changed since refile(); with repetitions
  std::set<std::int32_t> ready;       // sets that have something to release
  Agenda releases;
  Agenda stalls;
  std::unordered_map<std::uint64_t, std::int32_t> set_of_bit;  // the live bits
  std::deque<CacheBit> evicted;                                // to announce in the next step
  std::uint64_t next_bit = 1;
  std::uint64_t next_sequence = 1;
  std::optional<wire::Stop> stop_wanted;
  bool stopped = false;
  std::vector<Note> notes;
};

Coordinator::Impl::Impl(const CoordinatorOptions& o)
    : options(o),
      registry(o.size),
      change_stall(o.stall),
      board(o.size, o.stall),
      bits(topology::TreePlan(o.size, o.radix), 0, *registry.sets()) {
  HVD_CHECK(o.max_in_flight >= 1, "max_in_flight: expected 1 or more");
  sets.try_emplace(kGlobalProcessSet, registry.sets()->share(kGlobalProcessSet), options);
}

SetNegotiation* Coordinator::Impl::touch(std::int32_t id) {
  const auto set = sets.find(id);
  if (set == sets.end()) return nullptr;
  if (touched.empty() || touched.back() != id) touched.push_back(id);
  return &set->second;
}

void Coordinator::Impl::refile() {
  for (const std::int32_t id : std::exchange(touched, {})) {
    const auto set = sets.find(id);
    const bool gone = set == sets.end();
    releases.put(id, gone ? std::nullopt : set->second.release_deadline());
    stalls.put(id, gone ? std::nullopt : set->second.stall_deadline());
    if (!gone && set->second.has_ready()) {
      ready.insert(id);
    } else {
      ready.erase(id);
    }
  }
}

Status Coordinator::Impl::add_report(int from_rank, const wire::Report& report, TimePoint now) {
  HVD_RETURN_IF_ERROR(bits.check_senders(from_rank, report));
  for (const CacheBit bit : report.stale_bits) evict(bit);
  for (const wire::MergedRequest& merged : report.requests) {
    // An unknown set was removed while the request was on its way; its rank has failed the operation already.
    SetNegotiation* set = touch(merged.request.process_set);
    if (set != nullptr) HVD_RETURN_IF_ERROR(set->add_request(merged, now));
  }
  for (const wire::Report::Join& join : report.joins) {
    SetNegotiation* set = touch(join.process_set);
    if (set == nullptr) continue;
    // The join comes before the bits that it completes, because some of them cannot run with joined ranks.
    HVD_RETURN_IF_ERROR(set->add_join(join.rank, now));
    for (const CacheBit bit : bits.join(join.process_set, join.rank)) add_ready_bit(bit, now);
  }
  // After the joins, which may be what made these bits complete in the sender's subtree. No rank joins with a bit
  // outstanding, so this cannot take a rank's own bit for one without it.
  const int unit = *bits.unit_of(from_rank);
  for (const CacheBit bit : report.ready_bits) {
    if (bits.report(bit, unit)) add_ready_bit(bit, now);
  }
  for (const wire::MergedChange& merged : report.set_changes) registry.add(merged, now);
  for (const wire::Wait& wait : report.waits) {
    // What a removed set has under way still runs, and is judged like the rest.
    if (wait.kind != wire::Wait::Kind::kSubmitted || sets.contains(wait.process_set)) board.add(wait, now);
  }
  if (!report.shutdown_ranks.empty() && !stop_wanted) {
    const int rank = report.shutdown_ranks.front();
    stop_wanted =
        wire::Stop{wire::Stop::Kind::kShutdown, rank,
                   "Horovod has been shut down: rank " + std::to_string(rank) + " called shutdown() or ended."};
  }
  refile();
  return Status::ok();
}

void Coordinator::Impl::add_ready_bit(CacheBit bit, TimePoint now) {
  if (!touch(set_of_bit.at(value(bit)))->add_ready_bit(bit, now)) evict(bit);
}

// At once, not at the next step: the report that carries a stale bit may also carry a join of the same rank, which must
// not complete that bit.
void Coordinator::Impl::evict(CacheBit bit) {
  const auto owner = set_of_bit.find(value(bit));
  if (owner == set_of_bit.end() || !sets.at(owner->second).evict(bit)) return;
  set_of_bit.erase(owner);
  bits.forget(bit);
  evicted.push_back(bit);
}

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
  follow(change.set_id, decision.items, before);
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
  if (is_due(change_stall.next_deadline(registry.oldest()))) tell(change_stall.look(registry.waiting(), now));
  for (const std::int32_t id : stalls.due(now)) tell(touch(id)->look_for_stalls(now));
  refile();
  tell(board.look_at_collectives(now));
  if (ready.empty() && board.every_rank_waits(next_sequence - 1)) tell({.warning = board.deadlock()});
}

void Coordinator::Impl::tell(StallVerdict verdict) {
  if (!verdict.warning.empty()) notes.push_back({Note::Level::kWarning, std::move(verdict.warning)});
  if (verdict.shutdown.empty()) return;
  notes.push_back({Note::Level::kError, verdict.shutdown});
  if (!stop_wanted) stop_wanted = wire::Stop{wire::Stop::Kind::kStall, verdict.rank, std::move(verdict.shutdown)};
}

void Coordinator::Impl::release_ready(TimePoint now, std::size_t& room, wire::Decision& decision) {
  const bool flush = stop_wanted.has_value();
  for (const std::int32_t id : flush ? std::vector(ready.begin(), ready.end()) : releases.due(now)) {
    const std::size_t before = decision.items.size();
    touch(id)->release(now, flush, next_bit, room, decision.items);
    follow(id, decision.items, before);
  }
}

// Enters what a set released: the bits that it gave out and took back.
void Coordinator::Impl::follow(std::int32_t id, const std::vector<wire::DecisionItem>& items, std::size_t from) {
  for (std::size_t i = from; i < items.size(); ++i) {
    if (const auto* gone = std::get_if<wire::Evict>(&items[i])) set_of_bit.erase(value(gone->bit));
    const auto* response = std::get_if<wire::Response>(&items[i]);
    if (response != nullptr && response->bit != CacheBit::kNone) set_of_bit[value(response->bit)] = id;
  }
  warn_of_full_cache(id, sets.at(id));
}

void Coordinator::Impl::warn_of_full_cache(std::int32_t id, SetNegotiation& set) {
  if (!set.take_cache_full()) return;
  notes.push_back({Note::Level::kWarning,
                   "The response cache" + topology::of_set(id) + " is full with " +
                       std::to_string(options.cache_capacity) +
                       " tensors and begins to evict: tensors that are not in it cost more at every step. A larger "
                       "HOROVOD_CACHE_CAPACITY, or names that repeat from step to step, avoid that."});
}

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
  refile();
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

Coordinator::Coordinator(const CoordinatorOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Coordinator::~Coordinator() = default;
Coordinator::Coordinator(Coordinator&&) noexcept = default;
Coordinator& Coordinator::operator=(Coordinator&&) noexcept = default;

Status Coordinator::add_report(int from_rank, const wire::Report& report, TimePoint now) {
  if (impl_->stopped) return Status::ok();
  HVD_RETURN_IF_ERROR(impl_->add_report(from_rank, report, now));
  for (const wire::LostRank& lost : report.lost_ranks) on_rank_lost(lost.rank, lost.message);
  return Status::ok();
}

void Coordinator::on_rank_lost(int rank, std::string why) {
  if (impl_->stop_wanted && impl_->stop_wanted->kind == wire::Stop::Kind::kAbort) return;
  impl_->stop_wanted = make_abort(rank, std::move(why)).stop;
}

void Coordinator::on_batch_done(std::int32_t process_set) {
  if (SetNegotiation* set = impl_->touch(process_set)) set->on_batch_done();
  impl_->refile();
}

std::optional<wire::Decision> Coordinator::step(TimePoint now) { return impl_->step(now); }
std::vector<Note> Coordinator::take_notes() { return std::exchange(impl_->notes, {}); }
std::optional<TimePoint> Coordinator::next_deadline() const { return impl_->next_deadline(); }
const topology::ProcessSets& Coordinator::sets() const { return impl_->registry.sets(); }
bool Coordinator::stopped() const { return impl_->stopped; }

void Coordinator::set_limits(const wire::FusionLimits& limits) { impl_->options.limits = limits; }

wire::Decision make_abort(int lost_rank, std::string why) {
  std::string message = "rank " + std::to_string(lost_rank) + " is lost: " + std::move(why);
  message.resize(std::min(message.size(), wire::kMaxTextBytes));
  wire::Decision decision;
  decision.stop = wire::Stop{wire::Stop::Kind::kAbort, lost_rank, std::move(message)};
  return decision;
}

}  // namespace hvd::negotiation
