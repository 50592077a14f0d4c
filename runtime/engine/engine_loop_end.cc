// How an EngineLoop ends: by agreement, because a rank or a collective is lost, or by itself.
#include <algorithm>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/log.h"
#include "runtime/engine/engine_loop.h"
#include "runtime/wire/codec.h"

namespace hvd::engine {

namespace {

// A collective that fails because of a peer's death usually fails a moment before the control tree reports whose death
// it was. The engine waits so long for that better reason before it reports its own.
constexpr Millis kLaneErrorGrace{200};

constexpr const char* kUnequalSteps =
    "Do ranks run unequal numbers of steps? A rank that has no more data calls hvd.join().";

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

void EngineLoop::fail(const std::string& why) {
  loop_.post([this, why] {
    if (attached_) guard([&] { report_lost(own_rank(), why); });
  });
}

void EngineLoop::force_stop(const wire::Stop& reason) {
  loop_.post([this, reason] {
    guard([&] {
      const auto dropped = worker_.fail_all(reason.status());
      stop(reason);
      for (const auto& failed : dropped) table_.complete(failed.operation, failed.status);
    });
  });
}

// The flag comes first, then whatever may wait for peers is aborted, then operations fail: a thread that sees its
// operation fail finds the session stopping.
void EngineLoop::stop(const wire::Stop& reason) {
  check_thread();
  if (stop_reason_) return;
  HVD_FAILPOINT("engine.stop");
  stop_reason_ = reason;
  end_what_waits();
}

// Called again where it got no memory the first time: each step may be taken twice.
void EngineLoop::end_what_waits() {
  const wire::Stop& reason = *stop_reason_;
  const Status why = reason.status();
  stopping_.set();
  timer_->stop();
  watch_timer_->stop();
  lane_grace_->stop();
  on_stop_(reason);
  // After a shutdown, what runs already runs on every rank and can end; after a failure it cannot.
  if (reason.kind != wire::Stop::Kind::kShutdown) {
    executor_.abort(why);
  } else {
    start_watch();
    if (autotuning_) autotuning_->shut_down();
  }
  small_.close();
  const bool left_alone = reason.kind == wire::Stop::Kind::kShutdown && reason.rank != own_rank();
  table_.close(why, left_alone ? kUnequalSteps : "");
  set_changes_.close(why);
  table_.complete(lane_failures_, why);
  lane_failures_.clear();
  stopped_.set();
}

void EngineLoop::on_control_lost(int rank, const Status& why) {
  check_thread();
  if (stop_reason_) return end_watch_.lost(rank, why.message());
  guard([&] {
    if (!attached_) return early_.push_back({rank, {}, why});
    report_lost(rank, why.message());
  });
}

void EngineLoop::report_lost(int rank, const std::string& why) {
  check_thread();
  if (stop_reason_) return;
  HVD_FAILPOINT("engine.lost");
  const std::string text = rank == wire::LostRank::kNobody ? why : rank_text(rank) + ": " + why;
  if (is_root()) {
    coordinator_->on_rank_lost(rank, why);
    take_decisions();
  } else if (rank == tree().parent(own_rank())) {
    // The way to the root is cut: decide for all ranks below.
    deliver(negotiation::make_abort(rank, why));
  } else {
    relay_->add_lost(rank, why);
    move_reports();
  }
  HVD_LOG(kInfo, "lost", log_field("what", text));
}

// What was under way is half done, and is not touched again: nothing is reported but this. Decisions that the
// coordinator has numbered may be lost, here or on the way to a child, so that it is no decision of the coordinator on
// rank 0 either. All this needs a little memory itself: without any the process ends.
void EngineLoop::out_of_memory() {
  if (stop_reason_) return end_what_waits();
  const std::string why = "its thread hvd-engine got no more memory (std::bad_alloc)";
  const wire::Decision abort = negotiation::make_abort(own_rank(), why);
  if (attached_ && !is_root()) {
    wire::Report report;
    report.lost_ranks.push_back({own_rank(), why});
    send(tree().parent(own_rank()), wire::encode(report));
  }
  if (attached_) pass_on(abort);
  stop(*abort.stop);  // whatever the worker knows: it may have stopped before the engine could
}

// A lost peer is reported by lanes and by the control tree, and only the tree knows whether a rank died or the way
// between two that live was cut. So the first
// failure of that kind waits for the tree's word (kLaneErrorGrace), and later ones with it; any other failure is its
// own reason.
void EngineLoop::lane_failed(const Status& why, const std::vector<PendingOperationPtr>& operations) {
  check_thread();
  if (stop_reason_) return table_.complete(operations, stop_reason_->status());
  const bool is_first = !lane_error_;
  if (is_first) lane_error_ = why;
  const bool may_be_explained = why.code() == StatusCode::kPeerLost && (is_first || lane_grace_->active());
  if (may_be_explained) {
    lane_failures_.insert(lane_failures_.end(), operations.begin(), operations.end());
    if (is_first) lane_grace_->start(kLaneErrorGrace);
  } else {
    table_.complete(operations, why);
    if (is_first) report_lost(own_rank(), why.message());
  }
}

void EngineLoop::lane_grace_over() {
  check_thread();
  report_lost(wire::LostRank::kNobody, rank_text(own_rank()) + " reports: " + lane_error_->message());
  // Others may need long to answer when the network is cut: the user does not wait for them.
  table_.complete(std::exchange(lane_failures_, {}), *lane_error_);
}

void EngineLoop::finish(Deadline deadline, std::function<void()> give_up) {
  struct Shared {
    std::vector<std::unique_ptr<Lane>> lanes;
    Event taken;
    Event closed;
  };
  const auto shared = std::make_shared<Shared>();
  loop_.post([this, shared, deadline, give_up = std::move(give_up)] {
    HVD_FAILPOINT("end.lanes");
    shared->lanes = executor_.take_lanes();
    // A lane may wait for a peer that has vanished without a trace; the timer frees it.
    timer_.emplace(loop_.uv(), [this, give_up] {
      executor_.abort(Status::timeout("shutdown: a collective did not end in time"));
      give_up();
    });
    timer_->start(deadline.remaining());
    shared->taken.set();
  });
  shared->taken.wait();
  shared->lanes.clear();
  loop_.post([this, shared] {
    HVD_FAILPOINT("end.links");
    executor_.drop_backends();
    timer_.reset();
    watch_timer_.reset();
    lane_grace_.reset();
    idle_pages_.reset();
    if (links_ == nullptr) return shared->closed.set();
    links_->close([shared] { shared->closed.set(); });
  });
  while (!shared->closed.is_set() && !deadline.expired()) shared->closed.wait_for(deadline.remaining());
  loop_.stop_and_join();
}

}  // namespace hvd::engine
