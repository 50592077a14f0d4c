#include "runtime/engine/engine_loop.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/client/agent_client.h"
#include "runtime/base/check.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/log.h"
#include "runtime/wire/codec.h"

namespace hvd::engine {

namespace {

// How often idle memory is looked for. It is released in parts with pauses, or negotiation would wait.
constexpr Millis kIdlePagesPeriod{5000};
constexpr Millis kIdlePagesPause{20};

// Submissions that follow each other faster than this are a burst.
constexpr std::chrono::microseconds kBurstGap{20};

// The threads that this one starts from then on get the same core.
void pin_this_thread(int core) {
  constexpr std::size_t kSets = 16;  // for 16384 cores: the kernel wants room for all that it knows
  std::vector<cpu_set_t> allowed(kSets);
  std::vector<cpu_set_t> wanted(kSets);  // all zero
  const std::size_t size = kSets * sizeof(cpu_set_t);
  CPU_SET_S(static_cast<std::size_t>(core), size, wanted.data());
  std::string why = "it is not among those that this process may use";  // taskset's; the kernel would allow it
  const bool is_known = ::sched_getaffinity(0, size, allowed.data()) == 0;
  if (!is_known || CPU_ISSET_S(static_cast<std::size_t>(core), size, allowed.data())) {
    if (::sched_setaffinity(0, size, wanted.data()) == 0) return;
    why = std::strerror(errno);
  }
  HVD_LOG(kError, "HOROVOD_THREAD_AFFINITY: cannot pin threads to core ", std::to_string(core), ": ", why,
          "; they are not pinned");
}

}  // namespace

EngineLoop::EngineLoop(const EngineOptions& options, OperationTable& table, SmallExchange& small,
                       SetChanges& set_changes, recorder::FlightRecorder& recorder, BackendFactory backend_factory,
                       std::function<void(const wire::Stop&)> on_stop)
    : options_(options),
      table_(table),
      small_(small),
      set_changes_(set_changes),
      on_stop_(std::move(on_stop)),
      worker_(options.worker, table.sets()),
      router_(tree(), options.worker.rank),
      executor_(options.worker.rank, table, recorder, std::move(backend_factory), executor_events()),
      recorder_(recorder),
      watch_(options.worker.rank, options.coordinator.stall),
      root_watch_(tree(), options.worker.rank, options.coordinator.stall),
      loop_("hvd-engine") {
  if (is_root()) {
    coordinator_.emplace(options_.coordinator);
    if (options_.autotuning) {
      autotuning_.emplace(*options_.autotuning, [this](const autotune::Batching& batching) {
        coordinator_->set_batching(batching.threshold, batching.delay);
      });
    }
  } else {
    relay_.emplace(tree(), own_rank(), *worker_.sets());
  }
  if (options_.core) loop_.post([core = *options_.core] { pin_this_thread(core); });
  loop_.post([this] {
    timer_.emplace(loop_.uv(), [this] { pump(); });
    watch_timer_.emplace(loop_.uv(), [this] { guard([this] { watch(); }); });
    lane_grace_.emplace(loop_.uv(), [this] { guard([this] { lane_grace_over(); }); });
    idle_pages_.emplace(loop_.uv(), [this] {
      small_.give_up(SteadyClock::now() - kIdlePagesPeriod);  // what nobody waits for
      const bool is_more = options_.pages->release_idle(SteadyClock::now());
      idle_pages_->start_repeating(is_more ? kIdlePagesPause : kIdlePagesPeriod);
    });
    idle_pages_->start_repeating(kIdlePagesPeriod);
  });
}

Executor::Events EngineLoop::executor_events() {
  Executor::Events events;
  events.job_done = [this](std::int32_t set, std::uint64_t context_id) {
    if (!is_root()) return;
    loop_.post_quietly([this, set, context_id] { release_done(set, context_id); });
    if (awaits_batch_.load()) loop_.wake();
  };
  events.lane_ended = [this](std::uint64_t context_id) {
    loop_.post([this, context_id] { executor_.reap(context_id); });
  };
  events.failed = [this](const Status& why, std::vector<PendingOperationPtr> operations) {
    loop_.post([this, why, operations = std::move(operations)] {
      if (!guard([&] { lane_failed(why, operations); })) table_.complete(operations, why);
    });
  };
  return events;
}

EngineLoop::~EngineLoop() { loop_.stop_and_join(); }

void EngineLoop::attach(std::unique_ptr<transport::ControlLinks> links) {
  // std::function wants copyable captures; the links cross in a shared holder.
  auto holder = std::make_shared<std::unique_ptr<transport::ControlLinks>>(std::move(links));
  loop_.post([this, holder] {
    links_ = std::move(*holder);
    attached_ = true;
    for (const Early& early : std::exchange(early_, {})) {
      if (early.lost) {
        on_control_lost(early.rank, *early.lost);
      } else {
        on_control_message(early.rank, early.message);
      }
    }
    pump();
  });
}

void EngineLoop::notify() try {
  if (pump_posted_.exchange(true, std::memory_order_acq_rel)) return;
  loop_.post([this] {
    // In a burst of submissions, let the submitting thread go on if it shares this core: what it adds joins this
    // report.
    if (SteadyClock::now() - last_burst_ < kBurstGap) ::sched_yield();
    pump_posted_.store(false, std::memory_order_release);
    pump();
    last_burst_ = SteadyClock::now();
  });
} catch (const std::bad_alloc&) {  // the caller's; the next one posts
  pump_posted_.store(false, std::memory_order_release);
  throw;
}

void EngineLoop::request_shutdown() {
  loop_.post([this] {
    guard([this] { worker_.request_shutdown(); });
    pump();
  });
}

void EngineLoop::pump() {
  check_thread();
  if (!attached_ || stop_reason_) return;
  guard([this] {
    submit_fresh();
    move_reports();
    take_decisions();
    if (!stop_reason_) arm_timer();
  });
}

void EngineLoop::submit_fresh() {
  // Changes first: an operation that was added before a set's removal was asked for is then among those submitted here,
  // and a worker reports operations before changes.
  HVD_FAILPOINT("engine.submit");
  std::vector<wire::SetChange> changes = set_changes_.fetch();
  std::vector<negotiation::OwnRequest> fresh = table_.fetch();
  if (!fresh.empty()) start_watch();
  for (const auto& failed : worker_.submit(std::move(fresh))) {
    table_.complete(failed.operation, failed.status);
  }
  for (wire::SetChange& change : changes) {
    const Status taken = worker_.request_set_change(std::move(change));
    HVD_CHECK(taken.is_ok(), "a change of process sets was checked when it was added");
  }
}

void EngineLoop::move_reports() {
  const TimePoint now = run_time();
  while (worker_.has_report(now)) {
    if (!add_own_report(worker_.take_report(now), now)) return;
  }
  while (relay_ && relay_->has_report(now)) {
    HVD_FAILPOINT("engine.report");
    send(tree().parent(own_rank()), wire::encode(relay_->take_report(now)));
  }
}

void EngineLoop::send(int to_rank, Bytes message) {
  traffic_.messages_sent.fetch_add(1, std::memory_order_relaxed);
  traffic_.bytes_sent.fetch_add(message.size(), std::memory_order_relaxed);
  links_->send(to_rank, std::move(message));
}

ControlTraffic EngineLoop::traffic() const {
  return {traffic_.messages_sent, traffic_.bytes_sent, traffic_.messages_received, traffic_.bytes_received};
}

bool EngineLoop::add_own_report(wire::Report report, TimePoint now) {
  const Status added = is_root() ? coordinator_->add_report(own_rank(), report, now)
                                 : relay_->add_report(own_rank(), std::move(report), now);
  if (!added.is_ok()) {
    report_lost(own_rank(), added.message());
  } else if (is_root()) {
    trace_report(own_rank(), report);
  }
  return added.is_ok();
}

// Each decision is delivered before the next is made, so that what rank 0 reports because of it counts in the next.
void EngineLoop::take_decisions() {
  if (!is_root()) return;
  while (auto decision = coordinator_->step(run_time())) {
    HVD_FAILPOINT("engine.decide");
    deliver(std::move(*decision));
    if (stop_reason_) break;
    // The decision may have freed this rank's own worker to report more (an evicted bit).
    move_reports();
  }
  awaits_batch_.store(coordinator_->has_ready());
  for (const auto& note : coordinator_->take_notes()) {
    // What ends the session is logged where it ends, on this rank as on the others.
    if (note.level != negotiation::Note::Level::kWarning) continue;
    HVD_LOG(kWarning, note.text);
    if (note.waits_for >= 0 && !options_.agent_socket.empty()) {
      std::ignore = rendezvous::report_stall(options_.agent_socket, note.waits_for);  // it is told again, if need be
    }
  }
}

// One decision, in an order that peers and users rely on. Children get it first, because whole subtrees wait for it.
// Relay and worker follow before this rank reports again, which counts on what they know. The table of sets is
// published before the operations run that a new set may get, and before those of a removed one fail. A stop comes
// before what it fails, so that whoever sees a failure finds the reason. The handles of changes are last: who waits for
// one finds it in force.
void EngineLoop::deliver(wire::Decision decision) {
  check_thread();
  HVD_FAILPOINT("engine.deliver");
  if (const Status s = worker_.restore(decision); !s.is_ok()) return report_lost(own_rank(), s.message());
  pass_on(decision);
  if (relay_) {
    if (const Status s = relay_->on_decision(decision); !s.is_ok()) return report_lost(own_rank(), s.message());
  }
  const topology::ProcessSets sets_before = worker_.sets();
  auto output = worker_.on_decision(decision);
  if (!output.is_ok()) return report_lost(own_rank(), output.status().message());
  small_.learn(decision, *sets_before, *output.value().sets);
  for (const std::uint64_t context : output.value().answered_contexts) watch_.answered(context);
  if (!output.value().set_decisions.empty()) table_.publish(output.value().sets);
  trace_decision(output.value());
  // By the real time: of a pause between two steps the other clock leaves out what nobody waited.
  if (autotuning_) autotuning_->watch(output.value().ready, SteadyClock::now());
  executor_.execute(output.value());
  if (output.value().stop) stop(*output.value().stop);
  for (const auto& failed : output.value().failed) table_.complete(failed.operation, failed.status);
  set_changes_.complete(output.value().set_decisions);
}

void EngineLoop::pass_on(const wire::Decision& decision) {
  for (const auto& outgoing : router_.route(decision)) {
    for (const int child : outgoing.children) send(child, outgoing.message);
  }
}

void EngineLoop::on_control_message(int from_rank, ByteSpan message) {
  check_thread();
  if (!attached_) {
    guard([&] { early_.push_back({from_rank, Bytes(message.begin(), message.end()), std::nullopt}); });
    return;
  }
  traffic_.messages_received.fetch_add(1, std::memory_order_relaxed);
  traffic_.bytes_received.fetch_add(message.size(), std::memory_order_relaxed);
  if (stop_reason_) return;
  guard([&] {
    if (from_rank == tree().parent(own_rank())) {
      handle_decision(message);
    } else {
      handle_report(from_rank, message);
    }
  });
  pump();
}

void EngineLoop::handle_report(int from_rank, ByteSpan message) {
  HVD_FAILPOINT("engine.gather");
  auto report = wire::decode_report(message);
  if (!report.is_ok()) return report_lost(from_rank, report.status().message());
  const Status added = is_root() ? coordinator_->add_report(from_rank, report.value(), run_time())
                                 : relay_->add_report(from_rank, std::move(report).value(), run_time());
  if (!added.is_ok()) return report_lost(from_rank, added.message());
  if (is_root()) trace_report(from_rank, report.value());
}

void EngineLoop::handle_decision(ByteSpan message) {
  auto decision = wire::decode_decision(message);
  if (!decision.is_ok()) return report_lost(tree().parent(own_rank()), decision.status().message());
  deliver(std::move(decision).value());
}

void EngineLoop::release_done(std::int32_t process_set, std::uint64_t context_id) {
  check_thread();
  // The lane of a removed set may end when its id belongs to another set already.
  const topology::ProcessSet* set = worker_.sets()->find(process_set);
  if (set == nullptr || set->context_id != context_id) return;
  guard([&] { coordinator_->on_batch_done(process_set); });
  pump();
}

void EngineLoop::arm_timer() {
  std::optional<TimePoint> next = worker_.next_deadline();
  const auto other = is_root() ? coordinator_->next_deadline() : relay_->next_deadline();
  if (other && (!next || *other < *next)) next = other;
  if (!next) return timer_->stop();
  const auto wait = std::chrono::ceil<Millis>(*next - run_time());
  timer_->start(std::clamp(wait, Millis(0), RunClock::kPeriod));
}

}  // namespace hvd::engine
