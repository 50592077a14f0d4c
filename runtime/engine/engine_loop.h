#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "horovod/session.h"
#include "runtime/base/check.h"
#include "runtime/base/event.h"
#include "runtime/base/page_pool.h"
#include "runtime/engine/engine_options.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/operation_table.h"
#include "runtime/engine/progress_watch.h"
#include "runtime/engine/root_watch.h"
#include "runtime/engine/set_changes.h"
#include "runtime/engine/small_exchange.h"
#include "runtime/loop/loop.h"
#include "runtime/loop/timer.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/decision_router.h"
#include "runtime/negotiation/relay.h"
#include "runtime/negotiation/worker.h"
#include "runtime/transport/control/control_links.h"

namespace hvd::engine {

// The thread hvd-engine: moves operations from the table through negotiation to the executor. It alone touches the
// control links, the negotiation state and the executor, and it never blocks; everything that arrives makes it `pump`.
// Owned by the session. Public methods are thread-safe unless they say otherwise.
class EngineLoop final : public transport::ControlHandler {
 public:
  // `on_stop` runs once on the engine's thread when the session ends for whatever reason, before anything else is
  // failed.
  EngineLoop(const EngineOptions& options, OperationTable& table, SmallExchange& small, SetChanges& set_changes,
             recorder::FlightRecorder& recorder, BackendFactory backend_factory,
             std::function<void(const wire::Stop&)> on_stop);
  ~EngineLoop() override;  // Requires: finish() was called

  loop::Loop& loop() { return loop_; }
  const topology::TreePlan& tree() const { return options_.coordinator.tree; }
  // Gives the engine its connections; what came from them earlier is handled now. Once, before the first notify().
  void attach(std::unique_ptr<transport::ControlLinks> links);

  // Operations have been added to the table, or changes of process sets.
  void notify();
  // Asks all ranks to stop. `stopped()` is set when they have agreed, or when the session failed.
  void request_shutdown();
  Event& stopped() { return stopped_; }
  // Counted before anything follows from a message.
  ControlTraffic traffic() const;
  // Set before anything fails because of the stop, so that who sees a failure sees this too.
  const Event& stopping() const { return stopping_; }

  // Ends the session of all ranks because this one fails.
  void fail(const std::string& why);

  // Ends this rank's part without asking anybody.
  void force_stop(const wire::Stop& reason);

  // After stopped(): waits for the lanes, says goodbye, ends the thread. Blocks. At `deadline` the lanes are aborted
  // and `give_up` is called on the engine's thread: it has to end what else they may wait for, such as connections.
  void finish(Deadline deadline, std::function<void()> give_up);

  void on_control_message(int from_rank, ByteSpan message) override;
  void on_control_lost(int rank, const Status& why) override;

 private:
  // What came of a neighbour before attach().
  struct Early {
    int rank;
    Bytes message;
    std::optional<Status> lost;  // then no message
  };
  int own_rank() const { return options_.worker.rank; }
  bool is_root() const { return own_rank() == 0; }
  void check_thread() const { HVD_DCHECK(loop_.in_loop(), "negotiation is confined to hvd-engine"); }
  void pump();
  // Does `work`, which may run out of memory: then the session ends on all ranks, and this is false.
  template <typename Work>
  bool guard(Work&& work) {
    try {
      work();
      return true;
    } catch (const std::bad_alloc&) {
      out_of_memory();
      return false;
    }
  }
  void out_of_memory();
  void submit_fresh();
  void move_reports();
  void send(int to_rank, Bytes message);
  // To the coordinator or up the tree. False when the session ends because of it.
  bool add_own_report(wire::Report report, TimePoint now);
  void take_decisions();
  void deliver(wire::Decision decision);
  void pass_on(const wire::Decision& decision);  // to the children
  void stop(const wire::Stop& reason);
  void end_what_waits();
  void handle_report(int from_rank, ByteSpan message);
  void handle_decision(ByteSpan message);
  void report_lost(int rank, const std::string& why);
  Executor::Events executor_events();
  void release_done(std::int32_t process_set, std::uint64_t context_id);
  // Completes the operations that failed, at once or when it is known why.
  void lane_failed(const Status& why, const std::vector<PendingOperationPtr>& operations);
  void lane_grace_over();
  void arm_timer();

  // engine_loop_timeline.cc: what rank 0 sees of negotiation.
  void trace_report(int from_rank, const wire::Report& report);
  void trace_decision(const negotiation::WorkerOutput& output);

  // engine_loop_watch.cc: finds out that nothing moves.
  TimePoint run_time() { return clock_.read(SteadyClock::now()); }  // negotiation's time
  void start_watch();
  void watch();
  void watch_end();
  void handle(WaitFindings found);
  void report_waits(std::vector<wire::Wait> waits);
  void give_up(wire::Wait wait);
  std::string history() const;

  EngineOptions options_;
  OperationTable& table_;
  SmallExchange& small_;
  SetChanges& set_changes_;
  std::function<void(const wire::Stop&)> on_stop_;
  negotiation::Worker worker_;
  std::optional<negotiation::Coordinator> coordinator_;  // rank 0
  std::optional<negotiation::Relay> relay_;              // all others
  std::optional<Autotuning> autotuning_;                 // rank 0, where that is asked for
  negotiation::DecisionRouter router_;
  Executor executor_;
  recorder::FlightRecorder& recorder_;
  ProgressWatch watch_;
  RootWatch root_watch_;
  RunClock clock_;
  std::unique_ptr<transport::ControlLinks> links_;
  struct {
    std::atomic<std::uint64_t> messages_sent{0};
    std::atomic<std::uint64_t> bytes_sent{0};
    std::atomic<std::uint64_t> messages_received{0};
    std::atomic<std::uint64_t> bytes_received{0};
  } traffic_;
  std::vector<Early> early_;
  bool attached_ = false;
  std::optional<wire::Stop> stop_reason_;
  std::optional<loop::Timer> timer_;  // worker's and coordinator's deadlines
  std::optional<loop::Timer> watch_timer_;
  EndWatch end_watch_;                     // after a stop by agreement
  std::optional<loop::Timer> lane_grace_;  // see lane_failed
  std::optional<loop::Timer> idle_pages_;  // releases memory that nobody used for a while
  std::optional<Status> lane_error_;
  std::vector<PendingOperationPtr> lane_failures_;  // wait for the reason
  std::atomic<bool> pump_posted_{false};
  // Rank 0: something is ready, and may wait for the end of a batch. Written before the loop looks for what is posted
  // and sleeps, read after the end of a batch is posted. Both are sequentially consistent, so one of the two sees the
  // other: nothing that is ready waits beside a loop that sleeps.
  std::atomic<bool> awaits_batch_{false};
  TimePoint last_burst_{};  // when the last pump for submissions ended
  Event stopping_;
  Event stopped_;
  loop::Loop loop_;  // last: its thread uses everything above
};

}  // namespace hvd::engine
