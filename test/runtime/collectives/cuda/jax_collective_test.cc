#include "python/src/xla/jax_collective.h"

#include <barrier>
#include <future>

#include "python/src/published_session.h"
#include "runtime/collectives/cuda/event_watch.h"
#include "test/runtime/collectives/cuda/gpu_sessions.h"
#include "test/runtime/collectives/cuda/jax_call.h"

// The custom call of JAX's steps on a GPU. It finds its session where a process has its one; so one rank makes the
// call, and another one submits the same operations itself.
using namespace hvd;
using namespace hvd::test;

namespace {

// The session of this process, while this lives. Requires: `session` outlives it.
class Published {
 public:
  explicit Published(Session& session) {
    python::publish_session(std::shared_ptr<Session>(&session, [](Session*) {}), std::nullopt);
  }
  ~Published() { python::publish_session(nullptr, std::nullopt); }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;
};

std::string error_of(JaxCall& call) {
  const auto error = call.run();
  return error == nullptr ? "" : error->message;
}

// A session alone on a fake GPU.
std::unique_ptr<Session> start_alone() {
  config::RuntimeConfig config;
  use_fake_driver(config);
  config.log_level = LogLevel::kFatal;
  return Session::start(config).value();
}

}  // namespace

TEST_CASE("JAX's call returns before the GPU has made the results, which are ordered in the program's stream",
          "[multi][gpu]") {
  std::barrier both(2);
  const auto configure = [](config::RuntimeConfig& config) {
    use_fake_nccl(config);
    config.async_completion = true;
  };
  run_on_gpus(2, configure, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    for (float step = 1; step < 6; ++step) {
      GpuTensor x(stream, 5);
      GpuTensor y(stream, 7);
      if (rank == 1) fake_cuda_hold(stream.get());
      stream.write(x.data(), Values(5, step));
      stream.write(y.data(), Values(7, 2 * step));
      if (rank == 1) {
        std::vector<HandlePtr> handles;
        for (const auto& [name, tensor] : {std::pair("x", &x), std::pair("y", &y)}) {
          handles.push_back(session.enqueue(on_gpu(OpType::kAllreduce, name, *tensor, tensor->data())).value());
        }
        both.arrive_and_wait();  // the other rank's call has returned
        fake_cuda_release(stream.get());
        for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "a handle");
        continue;
      }
      const Published published(session);
      GpuTensor sum(stream, 7);
      JaxCall call(stream);
      call.add("x", x, x.data());
      call.add("y", y, sum.data());
      problems.expect(error_of(call) == "", "the call failed");
      Values seen_x(5, -1.0F);
      Values seen_y(7, -1.0F);
      read_in(stream, x, seen_x);
      read_in(stream, sum, seen_y);
      problems.expect(seen_x == Values(5, -1.0F), "the stream did not wait");
      both.arrive_and_wait();
      fake_cuda_synchronize(stream.get());
      problems.expect(seen_x == Values(5, 2 * step) && seen_y == Values(7, 4 * step), "what the stream reads");
      problems.expect(!xla::take_call_failure(), "a failure is remembered");
    }
  });
}

TEST_CASE("JAX's call reduces groups, and waits for the results unless they may be handed over", "[multi][gpu]") {
  const bool has_nccl = GENERATE(false, true);
  run_on_gpus(2, has_nccl ? use_fake_nccl : use_fake_driver, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    GpuTensor a(stream, Values(3, 1.0F));
    GpuTensor b(stream, Values(4, 2.0F));
    GpuTensor c(stream, Values(5, 3.0F));
    if (rank == 1) {
      const auto pair = session.enqueue_group(
          {on_gpu(OpType::kAllreduce, "a", a, a.data()), on_gpu(OpType::kAllreduce, "b", b, b.data())});
      const auto last = session.enqueue_group({on_gpu(OpType::kAllreduce, "c", c, c.data())});
      for (const HandlePtr& handle : pair.value()) problems.expect_ok(wait(handle), "the pair");
      problems.expect_ok(wait(last.value().front()), "the last");
    } else {
      const Published published(session);
      JaxCall call(stream, "2,1");
      call.add("a", a, a.data());
      call.add("b", b, b.data());
      call.add("c", c, c.data());
      problems.expect(error_of(call) == "", "the call failed");
    }
    problems.expect(a.values() == Values(3, 2.0F) && b.values() == Values(4, 4.0F) && c.values() == Values(5, 6.0F),
                    "sums");
  });
}

TEST_CASE("JAX's call fails when a rank is lost, with that error, which is told once more to who asks",
          "[multi][gpu]") {
  std::barrier both(2);
  run_on_gpus(2, use_fake_nccl, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(0);
    if (rank == 1) {
      both.arrive_and_wait();
      session.announce_failure("gone");
      both.arrive_and_wait();
      return;
    }
    const Published published(session);
    GpuTensor x(stream, Values(3, 1.0F));
    JaxCall call(stream);
    call.add("x", x, x.data());
    both.arrive_and_wait();
    const auto error = call.run();
    problems.expect(error != nullptr && has(error->message, "Horovod: ") && has(error->message, "gone"), "its text");
    const auto failure = xla::take_call_failure();
    problems.expect(failure && failure->status.code() == StatusCode::kPeerLost && !failure->interrupted, "its code");
    problems.expect(!xla::take_call_failure(), "it is told twice");
    both.arrive_and_wait();
  });
}

// Held: the program's stream, before what the call reduces.
TEST_CASE("JAX's call that fails does not return before the GPU is done with the program's memory", "[multi][gpu]") {
  std::barrier both(2);
  run_on_gpus(2, use_fake_driver, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    FrameworkStream stream(rank);
    GpuTensor x(stream, Values(3, 1.0F));
    if (rank == 1) {
      const auto mine = session.enqueue(on_gpu(OpType::kAllreduce, "x", x, x.data()));
      both.arrive_and_wait();  // it is begun on the other rank, which waits for its GPU
      session.announce_failure("gone");
      both.arrive_and_wait();
      problems.expect_code(wait(mine), StatusCode::kPeerLost, "gone", "its own loss");
      return;
    }
    const Published published(session);
    JaxCall call(stream);
    call.add("x", x, x.data());
    fake_cuda_hold(stream.get());
    const int copies = fake_cuda_calls("cuMemcpyAsync");
    auto error = std::async(std::launch::async, [&] { return call.run(); });
    const auto both_copied = [&] { return fake_cuda_calls("cuMemcpyAsync") == copies + 2; };  // one behind what is held
    problems.expect(comes_true(both_copied), "the copies");
    both.arrive_and_wait();
    GpuTensor y(stream, Values(3, 1.0F));
    const Status ended = wait(session.enqueue(on_gpu(OpType::kAllreduce, "y", y, y.data())));
    problems.expect_code(ended, StatusCode::kPeerLost, "gone", "nobody else has it");
    // Four times what a wait goes on after a failure.
    problems.expect(error.wait_for(4 * collectives::cuda::EventWatch::kGrace) == std::future_status::timeout,
                    "it has returned");
    fake_cuda_release(stream.get());
    const auto text = error.get();
    problems.expect(text != nullptr && has(text->message, "gone"), "its text");
    both.arrive_and_wait();
  });
}

TEST_CASE("JAX's call refuses a captured stream, other memory and an XLA that does not say where it runs",
          "[multi][gpu]") {
  {
    const auto session = start_alone();
    const Published published(*session);
    FrameworkStream stream(0);
    GpuTensor x(stream, Values(3, 1.0F));
    SECTION("captured") {
      fake_cuda_set_capturing(stream.get(), 1);
      JaxCall call(stream);
      call.add("x", x, x.data());
      const auto error = call.run();
      REQUIRE(error != nullptr);
      CHECK(has(error->message, "Horovod: tensor 'x' on GPU 0: "));
      CHECK(has(error->message, "CUDA graph"));
      CHECK(error->code == 3);
      fake_cuda_set_capturing(stream.get(), 0);
    }
    SECTION("of another GPU") {
      FrameworkStream other(1);
      GpuTensor there(other, 3);
      JaxCall call(stream);
      call.add("x", x, there.data());
      CHECK(has(error_of(call), "tensor 'x' on GPU 0: output: "));
    }
    SECTION("an error of XLA's") {
      JaxCall call(stream);
      call.add("x", x, x.data());
      call.context.stream_error = "no stream today";
      CHECK(error_of(call) == "Horovod: no stream today");
    }
    SECTION("an old XLA") {
      JaxCall call(stream);
      call.add("x", x, x.data());
      call.api.base.struct_size = sizeof(ffi::Api);
      CHECK(has(error_of(call), "this version of XLA"));
    }
    SECTION("groups of other tensors") {
      JaxCall call(stream, "2");
      call.add("x", x, x.data());
      CHECK(has(error_of(call), "groups of 2 tensors, and 1 tensors"));
    }
    CHECK(session->pending().empty());
    JaxCall next(stream);
    next.add("x", x, x.data());
    CHECK(error_of(next) == "");
  }
  expect_nothing_left();
}

TEST_CASE("JAX's call without a session says so", "[multi][gpu]") {
  {
    FrameworkStream stream(0);
    GpuTensor x(stream, Values(3, 1.0F));
    JaxCall call(stream);
    call.add("x", x, x.data());
    CHECK(has(error_of(call), "hvd.init()"));
  }
  expect_nothing_left();
}
