// Ranks that die, stop or fork. Rank 0 is this process, the others are forked.
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <future>
#include <random>

#include "runtime/transport/data/gloo_context.h"
#include "runtime/transport/net/sockets.h"
#include "test/runtime/transport/gloo_group.h"
#include "test/runtime/transport/process_ranks.h"

using namespace hvd;
using test::ProcessRanks;

namespace {

using ContextPtr = std::shared_ptr<gloo::Context>;
using Operation = void (*)(const ContextPtr&, std::vector<float>&);

void broadcast_from(const ContextPtr& context, std::vector<float>& values, int root) {
  gloo::BroadcastOptions options(context);
  options.setOutput(values.data(), values.size());
  options.setRoot(root);
  gloo::broadcast(options);
}
void broadcast_from_victim(const ContextPtr& c, std::vector<float>& v) { broadcast_from(c, v, 1); }
void broadcast_to_victim(const ContextPtr& c, std::vector<float>& v) { broadcast_from(c, v, 0); }
void allreduce(const ContextPtr& context, std::vector<float>& values) {
  gloo::AllreduceOptions options(context);
  options.setOutput(values.data(), values.size());
  options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
}
void exchange(const ContextPtr& context, std::vector<float>& values) {
  auto buffer = context->createUnboundBuffer(values.data(), values.size() * sizeof(float));
  if (context->rank == 0) {
    buffer->send(1, 1);
    buffer->waitSend();
  } else {
    buffer->recv(0, 1);
    buffer->waitRecv();
  }
}

// So large that a kill always hits the middle of a message.
#ifdef HVD_SANITIZED  // a killed process with a sanitizer's shadow of so much memory takes long to end
constexpr std::size_t kHuge = 4U << 20U;
#else
constexpr std::size_t kHuge = 64U << 20U;
#endif

struct Case {
  const char* name;
  Operation operation;
  std::size_t count;
};
const Case kCases[] = {
    {"a huge broadcast from the victim", broadcast_from_victim, kHuge},
    {"a huge broadcast to the victim", broadcast_to_victim, kHuge},
    {"a large allreduce", allreduce, kHuge / 4},
    {"a large send to the victim", exchange, kHuge / 4},
    {"an allreduce of 4 bytes", allreduce, 1},
};

// `started` is called once the connection is there: the death of a rank that never connected is the business of the
// control connections.
void repeat(transport::Fabric& fabric, const Case& test_case, const std::function<void()>& started = [] {}) {
  auto context = fabric.make_context(1, {0, 1}).value();
  std::vector<float> values(test_case.count, 1.0F);
  test_case.operation(context, values);
  started();
  for (;;) test_case.operation(context, values);
}

// Kills rank 1 after `delay` in the middle of its work; how long rank 0's wait went on after that.
Millis time_to_notice(const Case& test_case, Millis delay) {
  ProcessRanks ranks(2, [&](transport::Fabric& fabric) { repeat(fabric, test_case); });
  std::promise<TimePoint> failed;
  std::promise<void> started;
  std::string error;
  StatusCode code = StatusCode::kOk;
  std::jthread survivor([&] {
    try {
      repeat(*ranks.fabric, test_case, [&] { started.set_value(); });
    } catch (const transport::WaitError& e) {
      error = e.what();
      code = e.status().code();
    }
    failed.set_value(SteadyClock::now());
  });
  REQUIRE(started.get_future().wait_for(Millis(30000)) == std::future_status::ready);
  std::this_thread::sleep_for(delay);
  const auto killed = SteadyClock::now();
  kill(ranks.pid(1), SIGKILL);
  auto noticed = failed.get_future();
  REQUIRE(noticed.wait_for(Millis(10000)) == std::future_status::ready);
  survivor.join();
  CHECK(code == StatusCode::kPeerLost);
  CHECK(error.find("lost rank 1 on host ") == 0);
  return std::chrono::duration_cast<Millis>(noticed.get() - killed);
}

}  // namespace

TEST_CASE("A survivor hears of a killed peer, not only its silence, also in the middle of a message",
          "[multi][transport]") {
  for (const Case& test_case : kCases) {
    INFO(test_case.name);
    CHECK(time_to_notice(test_case, Millis(150)) < transport::kPeerSilence);
  }
}

TEST_CASE("Two hundred killed peers are noticed within a second each", "[.slow][transport]") {
  std::mt19937 random(20240607);
  std::vector<Millis> times;
  for (int trial = 0; trial < 200; ++trial) {
    const Case& test_case = kCases[static_cast<std::size_t>(trial) % std::size(kCases)];
    const Millis delay(std::uniform_int_distribution<int>(20, 400)(random));
    INFO(test_case.name << ", killed after " << delay.count() << " ms, trial " << trial);
    times.push_back(time_to_notice(test_case, delay));
    CHECK(times.back() < Millis(1000));
  }
  std::sort(times.begin(), times.end());
  WARN("noticed after: median " << times[100].count() << " ms, 99th percentile " << times[197].count() << " ms, worst "
                                << times.back().count() << " ms");
}

TEST_CASE("A forked child that lives on does not hide the death of its parent", "[multi][transport]") {
  int orphan_pid[2];
  REQUIRE(pipe(orphan_pid) == 0);
  {
    ProcessRanks ranks(2, [&](transport::Fabric& fabric) {
      auto context = fabric.make_context(1, {0, 1}).value();
      std::vector<float> values(4, 1.0F);
      allreduce(context, values);  // the connection is there
      const pid_t pid = fork();
      if (pid == 0) {
        for (;;) pause();  // like a data loader's worker: it holds whatever it inherited
      }
      HVD_CHECK(write(orphan_pid[1], &pid, sizeof(pid)) == sizeof(pid), "pid");
      for (;;) allreduce(context, values);
    });
    auto context = ranks.fabric->make_context(1, {0, 1}).value();
    std::vector<float> values(4, 1.0F);
    allreduce(context, values);
    pid_t orphan = 0;
    REQUIRE(read(orphan_pid[0], &orphan, sizeof(orphan)) == sizeof(orphan));
    for (int i = 0; i < 100; ++i) allreduce(context, values);  // the parent's connection has survived the fork
    const auto start = SteadyClock::now();
    kill(ranks.pid(1), SIGKILL);
    CHECK_THROWS_WITH(
        [&] {
          for (;;) allreduce(context, values);
        }(),
        Catch::Contains("lost rank 1"));
    CHECK(SteadyClock::now() - start < transport::kPeerSilence);
    CHECK(kill(orphan, 0) == 0);  // it did live on
    kill(orphan, SIGKILL);
  }
  close(orphan_pid[0]);
  close(orphan_pid[1]);
}

TEST_CASE("In a forked child the fabric refuses and can be destroyed", "[multi][transport]") {
  auto group = std::make_unique<test::FabricGroup>(2);
  auto context = group->fabrics[0]->make_context(1, {0, 1}).value();
  std::uint32_t value = 0;
  auto buffer = context->createUnboundBuffer(&value, sizeof(value));
  buffer->recv(1, 1);  // pending while the child destroys it
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    int code = 0;
    const Status status = group->fabrics[0]->make_context(2, {0, 1}).status();
    if (status.message().find("used after fork") != 0) code = 10;
    try {
      buffer->waitRecv();
      code = 11;
    } catch (const transport::WaitError& e) {
      if (std::string(e.what()).find("used after fork") != 0) code = 12;
    }
    group->fabrics[0]->abort(Status::aborted("nothing"));
    buffer.reset();
    context.reset();
    group.reset();
    _exit(code);
  }
  int result = 0;
  const auto deadline = Deadline::after(Millis(5000));
  while (waitpid(pid, &result, WNOHANG) == 0) {
    if (deadline.expired()) kill(pid, SIGKILL);
    std::this_thread::sleep_for(Millis(5));
  }
  CHECK(WIFEXITED(result));
  CHECK(WEXITSTATUS(result) == 0);
  // The parent goes on.
  auto peer = group->fabrics[1]->make_context(1, {0, 1}).value();
  const auto errors = test::run_all({[&] { buffer->waitRecv(); },
                                     [&] {
                                       std::uint32_t sent = 7;
                                       auto out = peer->createUnboundBuffer(&sent, sizeof(sent));
                                       out->send(0, 1);
                                       out->waitSend();
                                     }});
  CHECK(errors == std::vector<std::string>{"", ""});
  CHECK(value == 7);
}

TEST_CASE("A stopped peer is not dead, however long and whatever is in flight", "[.slow][transport]") {
  const Case large{"", allreduce, 16U << 20U};
  ProcessRanks ranks(2, [&](transport::Fabric& fabric) { repeat(fabric, large); });
  auto context = ranks.fabric->make_context(1, {0, 1}).value();
  std::vector<float> values(large.count, 1.0F);
  std::jthread stopper([&] {
    std::this_thread::sleep_for(Millis(200));
    kill(ranks.pid(1), SIGSTOP);
    std::this_thread::sleep_for(Millis(12000));  // twice kPeerSilence
    kill(ranks.pid(1), SIGCONT);
  });
  const auto start = SteadyClock::now();
  while (SteadyClock::now() - start < Millis(14000)) allreduce(context, values);
}
