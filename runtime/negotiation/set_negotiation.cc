#include "runtime/negotiation/set_negotiation.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/wire/codec.h"

namespace hvd::negotiation {

using wire::CacheBit;
using wire::Response;

namespace {

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
  std::vector<std::uint64_t> released_keys{0};
  push_ready(InFull{{std::move(response)}}, now);
  for (const RequestClass& c : classes) {
    const std::uint64_t key = c.representative.group_key;
    if (std::find(released_keys.begin(), released_keys.end(), key) != released_keys.end()) continue;
    released_keys.push_back(key);
    push_through_group(key, c.representative.group_size, std::nullopt, now);
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

void SetNegotiation::push_through_group(std::uint64_t key, std::uint32_t size, std::optional<Response> member,
                                        TimePoint now) {
  if (key == 0) return push_ready(InFull{{std::move(*member)}}, now);
  InFull group;
  for (std::optional<Response>& each : groups_.add(key, size, std::move(member))) {
    if (each) group.responses.push_back(std::move(*each));
  }
  if (!group.responses.empty()) push_ready(std::move(group), now);
}

void SetNegotiation::push_ready(Ready item, TimePoint now) {
  if (ready_.empty()) ready_since_ = now;
  ready_.push_back(std::move(item));
}

bool SetNegotiation::add_ready(wire::CacheHit hit, TimePoint now) {
  const CoordinatorCache::Cached* cached = cache_.find(hit.bit);
  HVD_CHECK(cached != nullptr, "a complete bit is a live bit");
  if (joins_.any() && !works_with_joined_ranks(cached->op)) return false;
  cache_.pin(hit.bit);
  push_ready(std::move(hit), now);
  return true;
}

Status SetNegotiation::add_join(int rank, TimePoint now) {
  const auto member = set_->set_rank(rank);
  if (!member || !joins_.add(topology::index(*member))) {
    return Status::internal("rank " + std::to_string(rank) + " joined process set " + std::to_string(set_->id) +
                            (member ? " twice" : ", of which it is not a member"));
  }
  for (auto at = pending_.begin(); at != pending_.end();) {
    const auto current = at++;
    if (is_ready(*current)) finish(current, now);
  }
  if (!joins_.all() || join_ready_) return Status::ok();
  join_ready_ = true;
  Response response;
  response.process_set = set_->id;
  response.op = OpType::kJoin;
  response.name = wire::kJoinName;
  response.root_rank = set_->global_rank(topology::SetRank{joins_.last()});
  push_ready(InFull{{std::move(response)}}, now);
  return Status::ok();
}

bool SetNegotiation::evict(CacheBit bit) { return cache_.erase(bit); }

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
