#include "runtime/negotiation/tensor_queue.h"

#include <limits>

#include "runtime/negotiation/group_table.h"
#include "runtime/wire/limits.h"

namespace hvd::negotiation {
namespace {

Status check_shape(const wire::Request& request) {
  if (request.shape.size() > wire::kMaxDimensions) {
    return Status::invalid_argument("tensor \"" + request.name + "\" has " + std::to_string(request.shape.size()) +
                                    " dimensions; at most " + std::to_string(wire::kMaxDimensions) + " are supported");
  }
  constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 8;
  std::int64_t elements = 1;
  for (const std::int64_t d : request.shape) {
    if (d < 0 || (d > 0 && elements > kMaxElements / d)) {
      return Status::invalid_argument("tensor \"" + request.name + "\" has the impossible shape " +
                                      to_string(request.shape));
    }
    if (d > 0) elements *= d;
  }
  return Status::ok();
}

std::string shortened(const std::string& name) { return name.size() <= 64 ? name : name.substr(0, 64) + "..."; }

}  // namespace

TensorQueue::TensorQueue(int rank, const topology::ProcessSetTable& sets) : rank_(rank) {
  for (const auto& [id, set] : sets.sets()) open_set(set);
}

Status TensorQueue::check_set(std::int32_t id, const char* what) const {
  const auto at = sets_.find(id);
  if (at == sets_.end() || at->second.closed) {
    return Status::invalid_argument("process set " + std::to_string(id) + " is not registered (" + what + ")");
  }
  if (!at->second.set.contains(rank_)) {
    return Status::invalid_argument("rank " + std::to_string(rank_) + " is not a member of process set " +
                                    std::to_string(id) + " (" + what + ")");
  }
  return Status::ok();
}

Status TensorQueue::check(const wire::Request& request) const {
  if (request.name.empty() || request.name.size() > wire::kMaxNameBytes) {
    return Status::invalid_argument("tensor name \"" + shortened(request.name) + "\" has " +
                                    std::to_string(request.name.size()) + " bytes; expected 1 to " +
                                    std::to_string(wire::kMaxNameBytes));
  }
  HVD_RETURN_IF_ERROR(check_set(request.process_set, request.name.c_str()));
  const SetState& state = sets_.at(request.process_set);
  if (state.names.contains(request.name)) {
    return Status::invalid_argument(
        "an operation named \"" + request.name + "\"" + topology::of_set(request.process_set) +
        " is pending already; wait for it, or give each pending operation a name of its own (two wrapped models or "
        "optimizers whose parameters have the same names: put a prefix before those of one, "
        "[(\"second.\" + name, parameter) for name, parameter in model.named_parameters()])");
  }
  if (request.op == OpType::kBroadcast && !state.set.contains(request.root_rank)) {
    return Status::invalid_argument("broadcast \"" + request.name + "\": root rank " +
                                    std::to_string(request.root_rank) + " is not in process set " +
                                    std::to_string(request.process_set));
  }
  return check_shape(request);
}

Status TensorQueue::add(std::vector<Submission> group) {
  if (group.empty()) return Status::ok();
  if (group.size() > wire::kMaxGroupSize) {
    return Status::invalid_argument("a group of " + std::to_string(group.size()) + " tensors; at most " +
                                    std::to_string(wire::kMaxGroupSize) + " are supported");
  }
  const bool grouped = group.size() > 1 || group.front().request.group_size == 1;
  std::unordered_set<std::string> names_in_group;
  std::vector<std::string> names;
  for (Submission& submission : group) {
    submission.request.rank = rank_;
    HVD_RETURN_IF_ERROR(check(submission.request));
    if (!grouped) break;
    if (submission.request.process_set != group.front().request.process_set) {
      return Status::invalid_argument(
          "the members of a group are in different process sets: " + std::to_string(group.front().request.process_set) +
          " and " + std::to_string(submission.request.process_set));
    }
    if (!names_in_group.insert(submission.request.name).second) {
      return Status::invalid_argument("the name \"" + submission.request.name + "\" occurs twice in a group");
    }
    names.push_back(submission.request.name);
  }
  const std::uint64_t key = grouped ? group_key(names) : 0;
  SetState& state = sets_.at(group.front().request.process_set);
  for (Submission& submission : group) {
    submission.request.group_key = key;
    submission.request.group_size = grouped ? static_cast<std::uint32_t>(group.size()) : 0;
    state.names.insert(submission.request.name);
    fresh_.push_back(std::move(submission));
  }
  return Status::ok();
}

Status TensorQueue::add(Submission alone) {
  if (alone.request.group_size == 1) {  // a group of one
    std::vector<Submission> group;
    group.push_back(std::move(alone));
    return add(std::move(group));
  }
  alone.request.rank = rank_;
  HVD_RETURN_IF_ERROR(check(alone.request));
  sets_.at(alone.request.process_set).names.insert(alone.request.name);
  fresh_.push_back(std::move(alone));
  return Status::ok();
}

Status TensorQueue::add_join(std::int32_t process_set, EntryId entry) {
  HVD_RETURN_IF_ERROR(check_set(process_set, "join"));
  SetState& state = sets_.at(process_set);
  if (state.join_pending) {
    return Status::invalid_argument("a join" + topology::of_set(process_set) + " is pending already");
  }
  state.join_pending = true;
  Submission submission;
  submission.request.rank = rank_;
  submission.request.process_set = process_set;
  submission.request.op = OpType::kJoin;
  submission.request.name = kJoinName;
  submission.entry = entry;
  fresh_.push_back(std::move(submission));
  return Status::ok();
}

std::vector<Submission> TensorQueue::fetch() { return std::exchange(fresh_, {}); }

void TensorQueue::complete(std::int32_t process_set, const std::string& name) {
  if (const auto at = sets_.find(process_set); at != sets_.end()) at->second.names.erase(name);
}

void TensorQueue::complete_join(std::int32_t process_set) {
  if (const auto at = sets_.find(process_set); at != sets_.end()) at->second.join_pending = false;
}

void TensorQueue::open_set(const topology::ProcessSet& set) {
  SetState state;
  state.set = set;
  sets_.insert_or_assign(set.id, std::move(state));
}

Status TensorQueue::close_set(std::int32_t id) {
  const auto at = sets_.find(id);
  if (at == sets_.end() || at->second.closed) {
    return Status::invalid_argument("process set " + std::to_string(id) + " is not registered");
  }
  if (id == kGlobalProcessSet) return Status::invalid_argument("the global process set cannot be removed");
  at->second.closed = true;
  return Status::ok();
}

std::size_t TensorQueue::pending() const {
  std::size_t count = 0;
  for (const auto& [id, state] : sets_) count += state.names.size() + (state.join_pending ? 1 : 0);
  return count;
}

}  // namespace hvd::negotiation
