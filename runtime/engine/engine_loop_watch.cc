// The part of EngineLoop that notices when nothing moves.
#include <algorithm>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/engine/engine_loop.h"
#include "runtime/negotiation/wait_board.h"
#include "runtime/wire/codec.h"

namespace hvd::engine {

void EngineLoop::start_watch() {
  if (tree().size() > 1 && !watch_timer_->active()) watch_timer_->start(RunClock::kPeriod);
}

void EngineLoop::watch() {
  check_thread();
  if (stop_reason_) return watch_end();
  if (!attached_) return;
  small_.give_up_sealed();
  pump();  // what a thread has added is reported before it is reported that the thread waits
  if (stop_reason_) return;
  const OperationTable::Oldest oldest = table_.oldest(SteadyClock::now() - ProgressWatch::kBlockedFor);
  const std::uint64_t seen = worker_.last_sequence();
  handle(watch_.look(executor_.running(), oldest.waited_for, seen, run_time()));
  if (!stop_reason_) handle(root_watch_.look(oldest.of_all, seen, run_time()));
  if (!stop_reason_ && !table_.empty()) start_watch();
}

void EngineLoop::handle(WaitFindings found) {
  for (wire::Wait& wait : found.unanswered) {
    wait.history = history();
    HVD_LOG(kWarning, "Stalled: " + negotiation::stuck_text(wait));
  }
  if (found.given_up && !is_root()) return give_up(std::move(*found.given_up));
  if (!found.waits.empty()) report_waits(std::move(found.waits));
}

void EngineLoop::watch_end() {
  const Status status = end_watch_.look(executor_.running(), run_time());
  if (!status.is_ok()) return executor_.abort(status);
  if (!table_.empty()) start_watch();
}

void EngineLoop::report_waits(std::vector<wire::Wait> waits) {
  wire::Report report;
  for (wire::Wait& wait : waits) {
    if (wait.says_stuck()) wait.history = history();
    report.waits.push_back(std::move(wait));
  }
  add_own_report(std::move(report), run_time());
  move_reports();
  take_decisions();
  if (!stop_reason_) arm_timer();
}

std::string EngineLoop::history() const {
  std::string text = "rank " + std::to_string(own_rank()) + ": " + recorder_.history(SteadyClock::now());
  text.resize(std::min(text.size(), wire::kMaxHistoryBytes));
  return text;
}

// The root does not answer this rank's reports: it decides for all ranks below.
void EngineLoop::give_up(wire::Wait wait) {
  wait.history = history();
  deliver(negotiation::make_stall(wait, watch_.limits()));
}

}  // namespace hvd::engine
