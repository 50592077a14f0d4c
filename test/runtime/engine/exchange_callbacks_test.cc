#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <random>
#include <thread>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "runtime/base/event.h"
#include "runtime/base/failpoint.h"
#include "test/runtime/engine/exchange_members.h"
#include "test/runtime/engine/job_support.h"

using namespace hvd;
using namespace hvd::test;

// Operations that end by a callback, as TensorFlow's kernels do, and are exchanged: nobody of their caller waits.
namespace {

using CallBack = std::function<void(const Handle&)>;

HandlePtr add(Member& member, const std::string& name, Values& data, CallBack on_done) {
  Operation operation = allreduce(name, data);
  operation.on_done = std::move(on_done);
  return member.small->add(std::move(operation)).value();
}

using Clock = TimePoint::clock;

void pause(std::chrono::microseconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) {
  }
}

bool soon(Event& event) {
  const Deadline deadline = Deadline::after(kLimit);
  while (!event.is_set() && !deadline.expired()) event.wait_for(deadline.remaining());
  return event.is_set();
}

// The same of what this thread's session is to call, which ends in vain.
bool soon_in_session(Event& event) {
  const bool is_set = soon(event);
  if (!is_set) OwnSession::give_up("a callback was not called in time");
  return is_set;
}

// As often as it is asked, one after the other: each is submitted in the callback of the one before.
class Chain {
 public:
  Chain(Session& session, Problems& problems, int length)
      : session_(session),
        problems_(problems),
        expected_(3, static_cast<float>(session.topology().size)),
        left_(length) {}

  void run() {
    submit();
    problems_.expect(soon_in_session(over_), "the chain does not end");
    problems_.expect(!is_deep_, "callbacks were called within each other");
  }

 private:
  void submit() {
    data_.assign(3, 1.0F);
    Operation operation = allreduce("chain", data_);
    operation.on_done = [this](const Handle& handle) { next(handle); };
    problems_.expect_ok(session_.enqueue(std::move(operation)).status(), "chain");
  }

  void next(const Handle& handle) {
    thread_local int depth = 0;
    if (++depth > 2) is_deep_ = true;  // in one that the engine has called there may be one that was exchanged
    problems_.expect_ok(handle.status(), "chain");
    problems_.expect(data_ == expected_, "a wrong sum");
    if (--left_ > 0) {
      submit();
    } else {
      over_.set();
    }
    --depth;
  }

  Session& session_;
  Problems& problems_;
  const Values expected_;
  Values data_;
  int left_;
  std::atomic<bool> is_deep_{false};
  Event over_;
};

}  // namespace

TEST_CASE("Who comes last has its callback called at once, who came before a little later", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1);
  Values left(3, 1.0F);
  Values right(3, 2.0F);
  Event called;
  std::atomic<int> calls{0};
  bool is_ok = false;
  const HandlePtr first = add(ranks.a, "x", left, [&](const Handle& handle) {
    is_ok = handle.status().is_ok();
    ++calls;
    called.set();
  });
  CHECK(calls == 0);
  const auto self = std::this_thread::get_id();
  std::thread::id by;
  add(ranks.b, "x", right, [&](const Handle&) { by = std::this_thread::get_id(); });
  CHECK(by == self);
  REQUIRE(soon(called));
  CHECK(first->is_known_done());
  CHECK(is_ok);
  CHECK(left == Values(3, 3.0F));
  CHECK(right == left);
  CHECK(calls == 1);
}

TEST_CASE("Several that wait are called back as they end, in any order and in groups", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1);
  ranks.learn("y", 2);
  std::array<Values, 2> left{Values(3, 1.0F), Values(3, 1.0F)};
  std::array<Values, 2> right{Values(3, 2.0F), Values(3, 2.0F)};
  std::array<Event, 2> called;
  const std::array<std::string, 2> names{"x", "y"};
  for (std::size_t i : {0U, 1U}) add(ranks.a, names[i], left[i], [&, i](const Handle&) { called[i].set(); });
  for (std::size_t i : {1U, 0U}) {  // the one that came first stays
    CHECK(!called[i].is_set());
    ranks.b.add(names[i], right[i]);
    REQUIRE(soon(called[i]));
    CHECK(left[i] == Values(3, 3.0F));
  }
}

TEST_CASE("What waits for long goes to the engine, and its callback with it", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1);
  Values left(3, 1.0F);
  std::atomic<int> calls{0};
  const HandlePtr handle = add(ranks.a, "x", left, [&](const Handle&) { ++calls; });
  const Deadline deadline = Deadline::after(kLimit);
  std::vector<negotiation::OwnRequest> submitted;
  while (submitted.empty() && !deadline.expired()) submitted = ranks.a.table.fetch();
  REQUIRE(submitted.size() == 1);
  CHECK(calls == 0);
  ranks.a.table.complete(submitted.front().operation, Status::ok());
  CHECK(calls == 1);
  CHECK(handle->is_known_done());
}

// How many of them come as late as one that was lost, after which who waits looks again by himself.
int late_wake_ups(Two& ranks, std::mt19937& random) {
  int late = 0;
  for (int i = 0; i < 2000; ++i) {
    Values left(3, 1.0F);
    Values right(3, 2.0F);
    Event called;
    add(ranks.a, "x", left, [&](const Handle&) { called.set(); });
    pause(std::chrono::microseconds(random() % 200));  // it sleeps by then, or not
    ranks.b.add("x", right);
    const TimePoint begin = Clock::now();
    REQUIRE(soon(called));
    late += Clock::now() - begin > engine::SmallUse::kPatience / 2 ? 1 : 0;
  }
  return late;
}

TEST_CASE("No wake-up of who waits is lost", "[unit][engine]") {
  constexpr int kByTheMachine = 2;  // which keeps a thread waiting
  Two ranks;
  ranks.learn("x", 1);
  std::mt19937 random(1);
  int late = late_wake_ups(ranks, random);
  for (int again = 0; again < 2 && late > kByTheMachine; ++again) late = late_wake_ups(ranks, random);
  CHECK(late <= kByTheMachine);
}

TEST_CASE("Without a thread to wait, and in a set that is left, it goes the ordinary way", "[unit][engine]") {
  const bool has_thread = GENERATE(true, false);
  if (!has_thread) REQUIRE(failpoint::arm("thread.start=EAGAIN").is_ok());
  Two ranks;
  ranks.learn("x", 1);
  Values left(3, 1.0F);
  int calls = 0;
  add(ranks.a, "x", left, [&](const Handle&) { ++calls; });
  if (has_thread) ranks.a.small->leave(kGlobalProcessSet);
  const auto submitted = ranks.a.table.fetch();
  REQUIRE(submitted.size() == 1);
  CHECK(calls == 0);
  ranks.a.table.complete(submitted.front().operation, Status::ok());
  CHECK(calls == 1);
  CHECK(failpoint::arm("").is_ok());
}

#if defined(__x86_64__)
TEST_CASE("Threads that take the smallest numbers for zero sum them as others do", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1);
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // as TensorFlow's are
  Values left(3, 1e-39F);
  Values right(3, 1e-39F);
  Event called;
  add(ranks.a, "x", left, [&](const Handle&) { called.set(); });  // on a thread that this one has made
  ranks.b.add("x", right);
  const bool is_called = soon(called);
  const bool is_kept = _mm_getcsr() == (before | 0x8040);
  _mm_setcsr(before);
  REQUIRE(is_called);
  CHECK(is_kept);
  CHECK(left == Values(3, 2e-39F));
  CHECK(right == Values(3, 2e-39F));
}
#endif

TEST_CASE("What waits when the session ends is called back once, with the reason", "[unit][engine]") {
  Two ranks;
  ranks.learn("x", 1);
  Values left(3, 1.0F);
  std::atomic<int> calls{0};
  add(ranks.a, "x", left, [&](const Handle& handle) {
    CHECK(handle.status().code() == StatusCode::kAborted);
    ++calls;
  });
  ranks.a.end();
  CHECK(calls == 1);
}

TEST_CASE("Operations that follow in callbacks cost no message, and take no stack", "[multi][engine]") {
  const int size = GENERATE(2, 3);
  std::barrier all(size);
  run_job(size, [&](Session& session, Problems& problems) {
    const auto chain = [&](int length) { Chain(session, problems, length).run(); };
    chain(10);
    problems.expect(fewest_messages(session, all, [&] { chain(300); }) == 0, "messages");
  });
}

TEST_CASE("Operations with a callback are exchanged, also where they have it on one rank", "[multi][engine]") {
  std::barrier all(2);
  std::atomic<int> called{0};
  run_job(2, [&](Session& session, Problems& problems) {
    const auto sum = [&] {
      for (int i = 0; i < 20; ++i) {
        Values data(3, 1.0F);
        Operation operation = allreduce("x", data);
        if (session.topology().rank == 1 && i > 5) operation.on_done = [&](const Handle&) { ++called; };
        problems.expect_ok(wait(session.enqueue(operation)), "x");
        problems.expect(data == Values(3, 2.0F), "a wrong sum");
      }
    };
    sum();
    problems.expect(fewest_messages(session, all, sum) == 0, "messages");
  });
  CHECK(called == 14 * 4);
}

TEST_CASE("Operations of several sets are waited for at once, and end in any order", "[multi][engine]") {
  const bool younger_first = GENERATE(false, true);
  std::barrier all(3);
  auto quickest = Clock::duration::max();  // to a callback, of those whose thread sleeps by the bell of the other set
  run_job(3, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    const auto added = session.add_process_set({0, 1});
    if (!wait(added).is_ok()) return problems.expect_ok(wait(added), "add_process_set");
    const auto pair = static_cast<std::int32_t>(added.value()->value());
    struct Tensor {
      std::int32_t set;
      float sum;
      Values data = {};
      Event called = {};
    };
    const auto round = [&] {
      std::array<Tensor, 2> tensors{Tensor{kGlobalProcessSet, 3.0F}, Tensor{pair, 2.0F}};
      const auto enqueue = [&](Tensor& tensor, bool with_callback) {
        tensor.data.assign(3, 1.0F);
        Operation operation = allreduce("x", tensor.data, ReduceOp::kSum, tensor.set);
        if (with_callback) operation.on_done = [&](const Handle&) { tensor.called.set(); };
        return session.enqueue(std::move(operation));
      };
      if (rank == 0) {
        for (Tensor& tensor : tensors) problems.expect_ok(enqueue(tensor, true).status(), "enqueue");
      }
      for (const std::size_t i : {younger_first ? 1U : 0U, younger_first ? 0U : 1U}) {
        pause(std::chrono::milliseconds(2));  // it sleeps by then
        all.arrive_and_wait();
        Tensor& tensor = tensors[i];
        const auto begin = Clock::now();
        if (rank == 0) {
          problems.expect(soon_in_session(tensor.called), "no callback");
          if (i == 0 && !younger_first) quickest = std::min(quickest, Clock::now() - begin);
        }
        if (rank == 1 || (rank == 2 && i == 0)) problems.expect_ok(wait(enqueue(tensor, false)), "x");
        if (rank < 2 || i == 0) problems.expect(tensor.data == Values(3, tensor.sum), "a wrong sum");
      }
    };
    for (int i = 0; i < 3; ++i) round();  // negotiated
    if (rank == 0) quickest = Clock::duration::max();
    problems.expect(fewest_messages(session, all, round) == 0, "messages");
  });
  if (!younger_first) CHECK(quickest < engine::SmallUse::kPatience / 4);
}

TEST_CASE("In a group some may have a callback", "[multi][engine]") {
  std::barrier all(2);
  std::atomic<int> called{0};
  run_job(2, [&](Session& session, Problems& problems) {
    const auto sum = [&] {
      std::vector<GroupMember> group;
      for (const char* const name : {"a", "b", "c"}) group.push_back({name, Values(3, 1.0F)});
      auto operations = operations_of(group);
      if (session.topology().rank == 0) operations[1].on_done = [&](const Handle&) { ++called; };
      const auto handles = session.enqueue_group(std::move(operations));
      if (!handles.is_ok()) return problems.expect_ok(handles.status(), "enqueue_group");
      for (const HandlePtr& handle : handles.value()) problems.expect_ok(wait(handle), "group");
      for (const GroupMember& member : group) problems.expect(member.data == Values(3, 2.0F), "a wrong sum");
    };
    for (int i = 0; i < 20; ++i) sum();
    problems.expect(fewest_messages(session, all, sum) == 0, "messages");
  });
  CHECK(called == 23);
}
