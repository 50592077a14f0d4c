#include "runtime/engine/set_changes.h"

#include <utility>

#include "runtime/base/check.h"
#include "runtime/engine/pending_operation.h"
#include "runtime/negotiation/worker.h"
#include "runtime/topology/process_set.h"

namespace hvd::engine {

namespace {

// What the caller gets. A set that exists is an error for add_process_set; in a static list the caller sorts it out,
// because the rest of the list is good.
Status outcome(const wire::SetDecision& decision) {
  if (decision.error != StatusCode::kOk) return Status(decision.error, decision.error_message);
  if (decision.kind != wire::SetChange::Kind::kAdd || !decision.entries.front().existed) return Status::ok();
  const wire::SetDecision::Entry& entry = decision.entries.front();
  return Status::invalid_argument("A process set with ranks " + topology::ranks_text(entry.ranks) +
                                  " exists already, with id " + std::to_string(entry.id) + ".");
}

std::int64_t value_of(const wire::SetDecision& decision) {
  if (decision.entries.empty()) return 0;
  return decision.kind == wire::SetChange::Kind::kStatic ? static_cast<std::int64_t>(decision.entries.size())
                                                         : decision.entries.front().id;
}

}  // namespace

Result<HandlePtr> SetChanges::add(wire::SetChange change) {
  for (std::size_t i = 0; i < change.rank_lists.size(); ++i) {
    auto ranks = topology::normalise(std::move(change.rank_lists[i]), world_size_);
    if (!ranks.is_ok()) {
      const bool listed = change.kind == wire::SetChange::Kind::kStatic;
      return listed ? ranks.status().annotate("process_sets[" + std::to_string(i) + "]") : ranks.status();
    }
    change.rank_lists[i] = std::move(ranks).value();
  }
  HVD_RETURN_IF_ERROR(negotiation::Worker::check_set_change(change));
  const MutexLock lock(mutex_);
  if (closed_) return *closed_;
  const auto own = std::make_shared<OwnHandle>();
  HandlePtr handle(own, &own->handle);
  waiting_.push_back(handle);
  fresh_.push_back(std::move(change));
  return handle;
}

std::vector<wire::SetChange> SetChanges::fetch() {
  HVD_DCHECK(engine_.is_current(), "changes of process sets are decided on hvd-engine");
  const MutexLock lock(mutex_);
  return std::exchange(fresh_, {});
}

void SetChanges::complete(const std::vector<wire::SetDecision>& decisions) {
  HVD_DCHECK(engine_.is_current(), "changes of process sets are decided on hvd-engine");
  for (const wire::SetDecision& decision : decisions) {
    const Status result = outcome(decision);  // while its handle still waits: it may get no memory
    HandlePtr handle;
    {
      const MutexLock lock(mutex_);
      if (waiting_.empty()) return;
      handle = std::move(waiting_.front());
      waiting_.pop_front();
    }
    handle->state().value = value_of(decision);
    handle->state().finish(result);
  }
}

void SetChanges::close(const Status& why) {
  HVD_DCHECK(engine_.is_current(), "changes of process sets are decided on hvd-engine");
  std::deque<HandlePtr> orphans;
  {
    const MutexLock lock(mutex_);
    if (!closed_) closed_ = why;
    orphans = std::exchange(waiting_, {});
    fresh_.clear();
  }
  for (const HandlePtr& handle : orphans) handle->state().finish(why);
}

}  // namespace hvd::engine
