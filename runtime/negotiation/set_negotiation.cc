#include "runtime/negotiation/set_negotiation.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/limits.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::Response;

namespace {

constexpr std::size_t kBitPartBytes = 16;

bool is_cached_kind(OpType op) {
  return op == OpType::kAllreduce || op == OpType::kAllgather || op == OpType::kAdasum || op == OpType::kAlltoall;
}

// Adds the request to the class it agrees with, represented by its lowest rank, or opens a class.
void classify(std::vector<RequestClass>& classes, const wire::Request& request) {
  for (RequestClass& c : classes) {
    if (!same_class(c.representative, request)) continue;
    if (request.rank < c.representative.rank) c.representative = request;
    return;
  }
  classes.push_back({request});
}

}  // namespace

SetNegotiation::SetNegotiation(topology::ProcessSetPtr set, const CoordinatorOptions& options)
    : set_(std::move(set)),
      max_in_flight_(set_->contains(0) ? options.max_in_flight : 0),
      delay_(options.batching_delay),
      joins_(set_->size()),
      cache_(options.cache_capacity),
      stall_(options.stall, set_->id) {}

Status SetNegotiation::add_request(const wire::MergedRequest& merged, TimePoint now) {
  const wire::Request& request = merged.request;
  auto at = by_name_.find(request.name);
  if (at == by_name_.end()) {
    Pending fresh{request.name, now, topology::RankSet(set_->size()), {}, {}, 0};
    at = by_name_.emplace(request.name, pending_.insert(pending_.end(), std::move(fresh))).first;
  }
  Pending& pending = *at->second;
  HVD_RETURN_IF_ERROR(enter_ranks(pending, merged));
  classify(pending.classes, request);
  pending.devices_key += merged.devices_key;
  if (is_ready(pending)) finish(at->second, now);
  return Status::ok();
}

Status SetNegotiation::enter_ranks(Pending& pending, const wire::MergedRequest& merged) {
  const bool with_dims = wire::has_first_dims(merged.request);
  if (with_dims) pending.first_dims.resize(static_cast<std::size_t>(set_->size()));
  for (const wire::RankRun& run : merged.ranks) {
    const auto first = set_->set_rank(run.first);
    const auto last = set_->set_rank(run.first + run.count - 1);
    const auto refuse = [&](const std::string& why) {
      return Status::internal("rank " + std::to_string(run.first) + (run.count > 1 ? " or one of the next" : "") +
                              " reported \"" + pending.name + "\"" + why);
    };
    if (!first || !last || topology::index(*last) - topology::index(*first) != run.count - 1) {
      return refuse(" for process set " + std::to_string(set_->id) + ", of which it is not a member");
    }
    const int begin = topology::index(*first);
    if (!pending.reported.insert_run(begin, run.count)) return refuse(" twice");
    if (with_dims) std::fill_n(pending.first_dims.begin() + begin, run.count, run.first_dim);
  }
  return Status::ok();
}

bool SetNegotiation::is_ready(const Pending& pending) const {
  if (!joins_.any()) return pending.reported.full();
  return pending.reported.union_count(joins_.joined()) == set_->size();
}

void SetNegotiation::finish(std::list<Pending>::iterator pending, TimePoint now) {
  Response response = make_response(*pending);
  const std::vector<RequestClass> classes = std::move(pending->classes);
  by_name_.erase(pending->name);
  pending_.erase(pending);
  const bool one_group = std::all_of(classes.begin(), classes.end(), [&](const RequestClass& c) {
    return c.representative.group_key == response.group_key;
  });
  if (one_group) {
    const auto [key, size] = std::pair(response.group_key, response.group_size);
    return push_through_group(key, size, std::move(response), now);
  }
  // The ranks disagree on the group, so the error leaves alone, and every group that was claimed goes on without it.
  std::vector<std::uint64_t> told{0};
  push_ready(std::move(response), now);
  for (const RequestClass& c : classes) {
    const std::uint64_t key = c.representative.group_key;
    if (std::find(told.begin(), told.end(), key) != told.end()) continue;
    told.push_back(key);
    push_through_group(key, c.representative.group_size, Tombstone{}, now);
  }
}

Response SetNegotiation::make_response(Pending& pending) const {
  std::sort(pending.classes.begin(), pending.classes.end(),
            [](const auto& a, const auto& b) { return a.representative.rank < b.representative.rank; });
  const wire::Request& first = pending.classes.front().representative;
  Response response;
  response.process_set = set_->id;
  response.op = first.op;
  response.dtype = first.dtype;
  response.reduce_op = first.reduce_op;
  response.root_rank = first.root_rank;
  response.prescale = first.prescale;
  response.postscale = first.postscale;
  response.shape = first.shape;
  response.name = first.name;
  response.group_key = first.group_key;
  response.group_size = first.group_size;
  response.on_gpu = first.device != kCpuDevice;
  response.devices_key = pending.devices_key;
  response.first_dims = std::move(pending.first_dims);
  ValidationContext context;
  for (int set_rank = 0; set_rank < set_->size(); ++set_rank) {
    if (!pending.reported.contains(set_rank)) context.joined.push_back(set_->global_rank(topology::SetRank{set_rank}));
  }
  response.joined = context.joined;
  if (std::optional<std::string> mismatch = find_mismatch(pending.classes, context)) {
    mismatch->resize(std::min(mismatch->size(), wire::kMaxTextBytes));
    response.error = StatusCode::kPrecondition;
    response.error_message = std::move(*mismatch);
    response.first_dims.clear();
  }
  return response;
}

void SetNegotiation::push_through_group(std::uint64_t key, std::uint32_t size, Ready item, TimePoint now) {
  if (key == 0) return push_ready(std::move(item), now);
  for (Ready& member : groups_.add(key, size, std::move(item))) push_ready(std::move(member), now);
}

void SetNegotiation::push_ready(Ready item, TimePoint now) {
  if (std::holds_alternative<Tombstone>(item)) return;
  if (ready_.empty()) ready_since_ = now;
  ready_.push_back(std::move(item));
}

bool SetNegotiation::add_ready_bit(CacheBit bit, TimePoint now) {
  const Response* cached = cache_.find(bit);
  HVD_CHECK(cached != nullptr, "a complete bit is a live bit");
  if (joins_.any() && !works_with_joined_ranks(cached->op)) return false;
  cache_.set_pinned(bit, true);
  push_through_group(cached->group_key, cached->group_size, bit, now);
  return true;
}

Status SetNegotiation::add_join(int rank, TimePoint now) {
  const auto member = set_->set_rank(rank);
  if (!member || !joins_.add(topology::index(*member))) {
    return Status::internal("rank " + std::to_string(rank) + " joined process set " + std::to_string(set_->id) +
                            (member ? " twice" : ", of which it is not a member"));
  }
  for (auto at = pending_.begin(); at != pending_.end();) {
    const auto here = at++;
    if (is_ready(*here)) finish(here, now);
  }
  if (!joins_.all() || join_ready_) return Status::ok();
  join_ready_ = true;
  Response response;
  response.process_set = set_->id;
  response.op = OpType::kJoin;
  response.name = wire::kJoinName;
  response.root_rank = set_->global_rank(topology::SetRank{joins_.last()});
  push_ready(std::move(response), now);
  return Status::ok();
}

bool SetNegotiation::evict(CacheBit bit) { return cache_.erase(bit); }

void SetNegotiation::on_batch_done() {
  if (in_flight_ > 0) --in_flight_;
}

bool SetNegotiation::may_release(TimePoint now) const {
  if (ready_.empty() || (max_in_flight_ > 0 && in_flight_ >= max_in_flight_)) return false;
  return now - ready_since_ >= delay_;
}

std::optional<TimePoint> SetNegotiation::release_deadline() const {
  if (ready_.empty() || (max_in_flight_ > 0 && in_flight_ >= max_in_flight_)) return std::nullopt;
  return ready_since_ + delay_;
}

std::size_t SetNegotiation::size_of(const Ready& item) const {
  const auto* response = std::get_if<Response>(&item);
  return response == nullptr ? kBitPartBytes : wire::encoded_size_bound(*response) + 2 * kBitPartBytes;
}

void SetNegotiation::release(TimePoint now, bool flush, std::uint64_t& next_bit, std::size_t& room,
                             std::vector<wire::DecisionItem>& items) {
  if (flush ? ready_.empty() : !may_release(now)) return;
  bool any = false;
  // A response may bring two evictions along.
  while (!ready_.empty() && items.size() + 3 <= wire::kMaxItems) {
    const std::size_t size = size_of(ready_.front());
    if (room < size && !items.empty()) break;  // one giant may exceed the budget alone
    room -= std::min(room, size);
    Ready item = std::move(ready_.front());
    ready_.pop_front();
    any = true;
    if (auto* response = std::get_if<Response>(&item)) {
      emit(std::move(*response), next_bit, items);
    } else {
      emit(std::get<CacheBit>(item), items);
    }
  }
  if (any) ++in_flight_;
}

void SetNegotiation::emit(Response response, std::uint64_t& next_bit, std::vector<wire::DecisionItem>& items) {
  if (response.op == OpType::kJoin) {
    joins_.reset();
    join_ready_ = false;
  }
  if (is_cached_kind(response.op) && !response.is_error() && response.joined.empty() && cache_.capacity() > 0) {
    response.bit = CacheBit{next_bit};
    const auto inserted = cache_.insert(response);
    cache_was_full_ |= inserted.full;
    for (const CacheBit old : inserted.evicted) items.emplace_back(wire::Evict{old});
    if (inserted.stored) {
      ++next_bit;
    } else {
      response.bit = CacheBit::kNone;
    }
  }
  items.emplace_back(std::move(response));
}

void SetNegotiation::emit(CacheBit bit, std::vector<wire::DecisionItem>& items) {
  cache_.set_pinned(bit, false);
  cache_.touch(bit);
  items.emplace_back(wire::CacheHit{bit});
}

bool SetNegotiation::take_cache_full() {
  if (!cache_was_full_ || cache_full_told_) return false;
  cache_full_told_ = true;
  return true;
}

std::optional<TimePoint> SetNegotiation::stall_deadline() const {
  return stall_.next_deadline(pending_.empty() ? std::nullopt : std::optional(pending_.front().since));
}

StallVerdict SetNegotiation::look_for_stalls(TimePoint now) {
  std::vector<WaitingTensor> waiting;
  for (const Pending& pending : pending_) {
    WaitingTensor tensor{pending.name, pending.since, {}};
    for (const int set_rank : pending.reported.missing_from_union(joins_.joined())) {
      tensor.missing.push_back(set_->global_rank(topology::SetRank{set_rank}));
    }
    waiting.push_back(std::move(tensor));
  }
  return stall_.look(waiting, now);
}

}  // namespace hvd::negotiation
