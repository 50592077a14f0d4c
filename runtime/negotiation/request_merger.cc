#include "runtime/negotiation/request_merger.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/negotiation/validator.h"

namespace hvd::negotiation {
namespace {

// Adds `merged` to the class it agrees with, or opens one.
Status classify(std::vector<wire::MergedRequest>& classes, wire::MergedRequest merged) {
  const auto same = std::find_if(classes.begin(), classes.end(), [&](const wire::MergedRequest& other) {
    return same_class(other.request, merged.request);
  });
  if (same == classes.end()) {
    classes.push_back(std::move(merged));
    return Status::ok();
  }
  if (!wire::merge_runs(same->ranks, merged.ranks)) {
    return Status::internal("rank " + std::to_string(merged.request.rank) + " or one below it reported \"" +
                            merged.request.name + "\" twice");
  }
  same->devices_key += merged.devices_key;
  if (merged.request.rank < same->request.rank) same->request = std::move(merged.request);
  return Status::ok();
}

}  // namespace

Status RequestMerger::add(wire::MergedRequest merged, TimePoint now) {
  const std::int32_t set = merged.request.process_set;
  const int members = bits_.members(set);
  const int ranks = wire::count_ranks(merged.ranks);
  // Once a member has joined, the relay cannot know how many requests are still to come.
  if (ranks >= members || bits_.any_joined(set)) {
    ready_.push_back(std::move(merged));
    return Status::ok();
  }
  const std::string name = merged.request.name;
  auto& tensors = sets_[set];
  Tensor& tensor = tensors[name];
  HVD_RETURN_IF_ERROR(classify(tensor.classes, std::move(merged)));
  tensor.ranks += ranks;
  if (!tensor.wait) tensor.wait = waiting_.insert(waiting_.end(), {set, name, now});
  if (tensor.ranks < members) return Status::ok();
  send(tensor);
  tensors.erase(name);
  return Status::ok();
}

void RequestMerger::send(Tensor& tensor) {
  std::move(tensor.classes.begin(), tensor.classes.end(), std::back_inserter(ready_));
  tensor.classes.clear();
  if (tensor.wait) waiting_.erase(*tensor.wait);
  tensor.wait.reset();
}

void RequestMerger::flush(std::int32_t process_set) {
  const auto set = sets_.find(process_set);
  if (set == sets_.end()) return;
  for (auto& [name, tensor] : set->second) send(tensor);
}

void RequestMerger::forget(std::int32_t process_set, const std::string& name) {
  const auto set = sets_.find(process_set);
  if (set == sets_.end()) return;
  const auto tensor = set->second.find(name);
  if (tensor == set->second.end()) return;
  if (tensor->second.wait) waiting_.erase(*tensor->second.wait);
  set->second.erase(tensor);
}

void RequestMerger::drop(std::int32_t process_set) {
  std::erase_if(waiting_, [&](const Wait& wait) { return wait.process_set == process_set; });
  sets_.erase(process_set);
}

void RequestMerger::flush_due(TimePoint now) {
  while (!waiting_.empty() && waiting_.front().since + kHold <= now) {
    const Wait& oldest = waiting_.front();
    send(sets_.at(oldest.process_set).at(oldest.name));
  }
}

std::optional<TimePoint> RequestMerger::next_deadline() const {
  return waiting_.empty() ? std::nullopt : std::optional(waiting_.front().since + kHold);
}

}  // namespace hvd::negotiation
