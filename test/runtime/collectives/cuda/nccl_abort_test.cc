#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "test/runtime/collectives/cuda/gpu_sessions.h"
#include "test/support/captured_log.h"
#include "test/support/threads.h"

// ncclCommAbort that does not come back.
using namespace hvd;
using namespace hvd::test;
using std::chrono::steady_clock;

namespace {

struct HeldAborts {
  HeldAborts() { fake_nccl_hold_aborts(1); }
  ~HeldAborts() { fake_nccl_hold_aborts(0); }
  HeldAborts(const HeldAborts&) = delete;
  HeldAborts& operator=(const HeldAborts&) = delete;
};

Operation sum_of(const GpuTensor& tensor, const std::string& name, std::int32_t set) {
  Operation operation = on_gpu(OpType::kAllreduce, name, tensor, tensor.data());
  operation.process_set = set;
  return operation;
}

std::vector<HandlePtr> submit(Session& session, Problems& problems, std::vector<Operation> operations) {
  auto handles = session.enqueue_group(std::move(operations));
  problems.expect_ok(handles.status(), "a group");
  return handles.is_ok() ? std::move(handles).value() : std::vector<HandlePtr>();
}

// What a user has of a set besides its own tensors: results that the core has allocated. Through the host, too.
std::array<CoreOutput, 2> gather_two(Session& session, Problems& problems, FrameworkStream& stream, std::int32_t set,
                                     std::size_t members) {
  GpuTensor layer(stream, Values(4, 2.0F));
  Operation adasum = sum_of(layer, "layer", set);
  adasum.reduce_op = ReduceOp::kAdasum;
  if (members == 2) problems.expect_ok(wait(session.enqueue(adasum)), "adasum");
  std::array<CoreOutput, 2> gathered;
  std::vector<Operation> gathers;
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    gathers.push_back(sum_of(layer, "rows" + std::to_string(i), set));
    gathers.back().op = OpType::kAllgather;
    gathered[i].take_from(session, stream.device(), gathers.back());
  }
  for (const HandlePtr& handle : submit(session, problems, std::move(gathers)))
    problems.expect_ok(wait(handle), "a gather");
  problems.expect(gathered[1].values() == Values(4 * members, 2.0F), "what was gathered");
  return gathered;
}

void sum_two(Session& session, Problems& problems, FrameworkStream& stream, std::int32_t set, std::size_t members) {
  GpuTensor a(stream, Values(100, 1.0F));
  GpuTensor b(stream, Values(50, 2.0F));
  for (const HandlePtr& handle : submit(session, problems, {sum_of(a, "a", set), sum_of(b, "b", set)}))
    problems.expect_ok(wait(handle), "a sum");
  const auto all = static_cast<float>(members);
  problems.expect(a.values() == Values(100, all) && b.values() == Values(50, 2 * all), "sums");
}

void use_nccl_and_log(config::RuntimeConfig& config) {
  use_fake_nccl(config);
  config.log_level = LogLevel::kWarning;
}

// Rank 2 is lost while ranks 0 and 1 wait for it in NCCL. Their other set has memory on the same GPUs.
// `late`: a stream of rank 2 that runs nothing.
LossTimes lose_a_peer(Problems& problems, FrameworkStream& late) {
  LossTimes times;
  steady_clock::time_point lost;
  std::array<steady_clock::time_point, 2> raised;
  {
    JobFixture job(3);
    job.run(
        [&](Session& session) {
          const int rank = session.topology().rank;
          const auto pair = session.add_process_set({0, 1}).value();
          problems.expect_ok(wait(pair), "the pair");
          FrameworkStream stream(rank);
          const auto of_all = gather_two(session, problems, stream, 0, 3);
          std::array<CoreOutput, 2> of_pair;
          if (rank < 2) of_pair = gather_two(session, problems, stream, static_cast<std::int32_t>(pair->value()), 2);
          problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "all have come");
          GpuTensor tensor(rank == 2 ? late : stream, Values(10, 1.0F));
          const auto handle = session.enqueue(sum_of(tensor, "x", 0));
          if (rank == 2) {
            const auto both_wait = [] { return fake_nccl_running(0) > 0 && fake_nccl_running(1) > 0; };
            problems.expect(comes_true(both_wait), "NCCL did not begin");
            lost = steady_clock::now();
            session.announce_failure("gone");
          }
          problems.expect_code(wait(handle), StatusCode::kPeerLost, "gone", "the loss");
          if (rank < 2) raised[static_cast<std::size_t>(rank)] = steady_clock::now();
        },
        use_nccl_and_log);
  }
  times.to_raise = std::max(raised[0], raised[1]) - lost;
  times.to_end = steady_clock::now() - std::max(raised[0], raised[1]);
  return times;
}

// Also where a kernel of a session before waits for good: a result of the core is let go there, and the session ends.
void begin_anew(Problems& problems, int device) {
  config::RuntimeConfig config;
  use_nccl_and_log(config);
  const auto session = Session::start(config).value();
  const CallsOf on_nccl("ncclAllReduce");
  sum_list(*session, problems, device, 100, 1);  // one tensor: a list would need no NCCL
  CHECK(on_nccl.now() > 0);
  FrameworkStream stream(device);
  gather_two(*session, problems, stream, 0, 1);
}

// Those of aborts that have come back end soon.
void wait_for_abort_threads() {
  CHECK(comes_true([] { return threads_named("hvd-nccl-abort") == 0; }));
}

}  // namespace

TEST_CASE("An abort of NCCL that does not come back holds up no survivor, no end of a session and no new one",
          "[multi][gpu]") {
  Problems problems;
  std::vector<std::unique_ptr<FrameworkStream>> late;
  {
    const CapturedLog log;
    const HeldAborts held;
    const auto lose = [&] {
      late.push_back(std::make_unique<FrameworkStream>(2));
      fake_cuda_hold(late.back()->get());
      return lose_a_peer(problems, *late.back());
    };
    LossTimes times = lose();
    CHECK(fake_nccl_held_aborts() > 0);
    constexpr std::chrono::seconds kMost{1};  // the best of three, as other programs may have the cores
    for (int again = 0; again < 2 && times.to_raise > kMost; ++again) times = lose();
    CHECK(times.to_raise < kMost);
    CHECK(times.to_end < std::chrono::seconds(10));
    for (const int device : {0, 3}) begin_anew(problems, device);
    CHECK(log.count("ncclCommAbort has not come back for 2000 ms: what NCCL uses of GPU 0 is left to it") > 0);
  }
  CHECK(comes_true([] { return fake_nccl_alive("communicator") == 0; }));
  wait_for_abort_threads();
  for (const auto& stream : late) fake_cuda_release(stream->get());
  late.clear();
  for (const int device : {0, 1, 2}) begin_anew(problems, device);  // where nothing is given up any more
  CHECK(problems.text() == "");
  fake_cuda_forget();
  expect_nothing_left();
}

// NCCL connects the members in their first collective, on a thread of its own, which goes on until the abort is back:
// here long after the survivor has raised and let its tensor go.
TEST_CASE("What NCCL puts into the stream after the loss of a peer finds the tensors still there", "[multi][gpu]") {
  const bool comes_back_late = GENERATE(false, true);
  INFO(comes_back_late);
  Problems problems;
  std::atomic<int> looked{0};
  {
    const CapturedLog log;
    fake_nccl_set_launches_late(1);
    if (comes_back_late) fake_nccl_hold_aborts(1);
    JobFixture job(2);
    job.run(
        [&](Session& session) {
          FrameworkStream stream(session.topology().rank);
          auto tensor = std::make_unique<GpuTensor>(stream, Values(10, 1.0F));
          const std::weak_ptr<void> memory = tensor->owner();
          auto handle = session.enqueue(sum_of(*tensor, "x", 0)).value();
          if (session.topology().rank == 1) {
            problems.expect(comes_true([] { return fake_nccl_late_launches() == 2; }), "NCCL does not connect");
            session.announce_failure("gone");
          }
          problems.expect_code(wait(handle), StatusCode::kPeerLost, "gone", "the loss");
          tensor.reset();
          handle.reset();
          problems.expect(!comes_back_late || !memory.expired(), "a tensor was let go that NCCL may write to");
          ++looked;
          problems.expect(comes_true([&] { return looked == 2; }), "the other rank has not looked");
          fake_nccl_hold_aborts(0);
          problems.expect(comes_true([&] { return memory.expired(); }), "a tensor is kept that NCCL is done with");
        },
        use_nccl_and_log);
    fake_nccl_set_launches_late(0);
  }
  wait_for_abort_threads();
  CHECK(problems.text() == "");
  expect_nothing_left();
}

// A communicator whose memory NCCL refuses to one member is aborted by all, and another one made.
TEST_CASE("While an abort of NCCL does not come back, its set and another one go on", "[multi][gpu]") {
  Problems problems;
  steady_clock::time_point is_done;
  {
    const CapturedLog log;
    const HeldAborts held;
    fake_nccl_fail("ncclCommWindowRegister", 1, 2);
    JobFixture job(3);
    job.run(
        [&](Session& session) {
          const int rank = session.topology().rank;
          const auto pair = session.add_process_set({0, 1}).value();
          problems.expect_ok(wait(pair), "the pair");
          FrameworkStream stream(rank);
          for (int step = 0; step < 3; ++step) {
            if (rank < 2) sum_two(session, problems, stream, static_cast<std::int32_t>(pair->value()), 2);
            sum_two(session, problems, stream, 0, 3);
            problems.expect(comes_true([] { return fake_nccl_held_aborts() == 2; }), "no abort was held");
          }
          problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "all have come");
          if (rank == 0) is_done = steady_clock::now();
        },
        use_nccl_and_log);
    CHECK(steady_clock::now() - is_done < std::chrono::seconds(10));
    CHECK(log.count("ncclCommAbort has not come back for 2000 ms: what NCCL uses of GPU ") == 2);
  }
  CHECK(problems.text() == "");
  CHECK(comes_true([] { return fake_cuda_alive("context") == 0; }));
  wait_for_abort_threads();
  CHECK(fake_nccl_alive("memory") == 2);  // nobody can tell when NCCL is done with it
  fake_nccl_forget();
  fake_cuda_forget();
  expect_nothing_left();
}
