#include "runtime/collectives/backend_list.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace hvd::collectives {

BackendList::BackendList(std::vector<std::unique_ptr<CollectiveBackend>> backends,
                         std::shared_ptr<LaunchOrder> launches)
    : backends_(std::move(backends)), launches_(std::move(launches)) {
  HVD_CHECK(!backends_.empty(), "a process set has at least one backend");
}

BackendList::Choice BackendList::choose(const CallTraits& call) const {
  Choice choice;
  for (const auto& backend : backends_) {
    const std::string why_not = backend->why_not(call);
    if (why_not.empty()) {
      choice.backend = backend.get();
      break;
    }
    if (!choice.declined.empty()) choice.declined += "; ";
    choice.declined.append(backend->name()).append(": ").append(why_not);
  }
  return choice;
}

void BackendList::abort(const Status& why) const {
  for (const auto& backend : backends_) backend->abort(why);
}

PeerProgress BackendList::progress() const {
  PeerProgress sum;
  for (const auto& backend : backends_) {
    const PeerProgress one = backend->progress();
    sum.moved += one.moved;
    sum.waits_for.insert(sum.waits_for.end(), one.waits_for.begin(), one.waits_for.end());
  }
  std::sort(sum.waits_for.begin(), sum.waits_for.end());
  sum.waits_for.erase(std::unique(sum.waits_for.begin(), sum.waits_for.end()), sum.waits_for.end());
  return sum;
}

}  // namespace hvd::collectives
