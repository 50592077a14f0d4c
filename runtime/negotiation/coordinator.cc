#include "runtime/negotiation/coordinator.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/negotiation/coordinator_impl.h"
#include "runtime/wire/codec.h"

namespace hvd::negotiation {

using wire::value;

Coordinator::Impl::Impl(const CoordinatorOptions& o)
    : options(o),
      registry(o.tree.size()),
      change_stall(o.stall),
      board(o.tree.size(), o.stall),
      bits(o.tree, 0, *registry.sets()) {
  HVD_CHECK(o.max_in_flight >= 1, "max_in_flight: expected 1 or more");
  sets.try_emplace(kGlobalProcessSet, registry.sets()->share(kGlobalProcessSet), options);
}

SetNegotiation* Coordinator::Impl::touch(std::int32_t id) {
  const auto set = sets.find(id);
  if (set == sets.end()) return nullptr;
  if (touched.empty() || touched.back() != id) touched.push_back(id);
  return &set->second;
}

void Coordinator::Impl::reschedule() {
  for (const std::int32_t id : std::exchange(touched, {})) {
    const auto set = sets.find(id);
    const bool is_removed = set == sets.end();
    releases.put(id, is_removed ? std::nullopt : set->second.release_deadline());
    stalls.put(id, is_removed ? std::nullopt : set->second.stall_deadline());
    if (!is_removed && set->second.has_ready()) {
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
    for (const CacheBit bit : bits.join(join.process_set, join.rank)) add_ready_bit(bit, {}, now);
  }
  // After the joins, which may be what made these bits complete in the sender's subtree. No rank joins with a bit
  // outstanding, so this cannot take a rank's own bit for one without it.
  const int unit = *bits.unit_of(from_rank);
  for (const CacheBit bit : report.ready_bits) {
    if (bits.report(bit, unit)) add_ready_bit(bit, {}, now);
  }
  for (const wire::ReadyTensor& tensor : report.ready_tensors) {
    HVD_ASSIGN_OR_RETURN(const bool is_complete, bits.report(tensor, unit));
    if (is_complete) add_ready_bit(tensor.bit, bits.take_elements(tensor.bit), now);
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
  reschedule();
  return Status::ok();
}

void Coordinator::Impl::add_ready_bit(CacheBit bit, std::string elements, TimePoint now) {
  if (!touch(set_of_bit.at(value(bit)))->add_ready({bit, std::move(elements)}, now)) evict(bit);
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
  impl_->reschedule();
}

void Coordinator::set_batching(std::uint64_t threshold, std::chrono::microseconds delay) {
  impl_->options.limits.threshold = threshold;
  impl_->options.batching_delay = delay;
  for (const auto& [id, set] : impl_->sets) impl_->touch(id)->set_delay(delay);
  impl_->reschedule();
}

std::optional<wire::Decision> Coordinator::step(TimePoint now) { return impl_->step(now); }
std::vector<Note> Coordinator::take_notes() { return std::exchange(impl_->notes, {}); }
std::optional<TimePoint> Coordinator::next_deadline() const { return impl_->next_deadline(); }
const topology::ProcessSets& Coordinator::sets() const { return impl_->registry.sets(); }
bool Coordinator::has_ready() const { return !impl_->ready.empty(); }

wire::Decision make_abort(int lost_rank, std::string why) {
  std::string message = lost_rank == wire::LostRank::kNobody
                            ? std::move(why)
                            : "rank " + std::to_string(lost_rank) + " is lost: " + std::move(why);
  message.resize(std::min(message.size(), wire::kMaxTextBytes));
  wire::Decision decision;
  decision.stop = wire::Stop{wire::Stop::Kind::kAbort, lost_rank, std::move(message)};
  return decision;
}

}  // namespace hvd::negotiation
