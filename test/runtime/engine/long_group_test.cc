// A group whose announcement is larger than one decision may be, on real ranks: slow, as it takes 16 MiB of names.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/wire/codec.h"
#include "test/runtime/engine/exchange_members.h"
#include "test/runtime/engine/job_support.h"
#include "test/support/captured_log.h"

using namespace hvd;
using namespace hvd::test;

namespace {

// So many members with names so long that the root takes three decisions to announce the group, and waits before the
// third until the first has been executed; and so small that callers exchange it once it is cached.
constexpr std::size_t kLongGroup = 4090;
constexpr std::size_t kNameBytes = 4090;
static_assert(kLongGroup * kNameBytes > wire::kMessageByteBudget);

struct LongGroup {
  LongGroup() {
    for (std::size_t i = 0; i < kLongGroup; ++i) {
      group.push_back({"member " + std::to_string(i) + " ", Values(1)});
      group.back().name.resize(kNameBytes, '.');
    }
  }
  static float value(int rank, int step, std::size_t i) {
    return static_cast<float>(rank + step + static_cast<int>(i));
  }
  void fill(int rank, int step) {
    for (std::size_t i = 0; i < group.size(); ++i) group[i].data[0] = value(rank, step, i);
  }
  float sum(int size, int step, std::size_t i) const {
    float all = 0;
    for (int rank = 0; rank < size; ++rank) all += value(rank, step, i);
    return all;
  }
  std::vector<GroupMember> group;
};

// Each step: the group, as soon as its first member is done that one alone, and now and then a rank without the group.
void run_long_group(Session& session, Problems& problems, int steps) {
  const int rank = session.topology().rank;
  const int size = session.topology().size;
  LongGroup of;
  for (int step = 0; step < steps; ++step) {
    of.fill(rank, step);
    const bool differs = step % 5 == 4;
    std::vector<HandlePtr> handles;
    if (differs && rank == step % size) {
      for (Operation& operation : operations_of(of.group))
        handles.push_back(session.enqueue(std::move(operation)).value());
    } else {
      handles = session.enqueue_group(operations_of(of.group)).value();
    }
    Values alone(1, 1.0F);
    if (!differs && step % 5 < 2) {
      problems.expect_ok(wait(handles.front()), "the first");
      problems.expect_ok(wait(session.enqueue(allreduce(of.group.front().name, alone))), "the first, alone");
      problems.expect(alone[0] == static_cast<float>(size), "a wrong sum of one alone");
    }
    Values other(3, 1.0F);  // takes the only place in the cache
    if (step % 2 == 0)
      problems.expect_ok(wait(session.enqueue(allreduce("other " + std::to_string(step), other))), "other");
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < handles.size(); ++i) {
      const Status status = wait(handles[i]);
      const bool is_right = differs ? status.code() == StatusCode::kPrecondition &&
                                          status.message().find("Mismatched groups") != std::string::npos
                                    : status.is_ok() && of.group[i].data[0] == of.sum(size, step, i);
      wrong += is_right ? 0 : 1;
    }
    problems.expect(wrong == 0, "step " + std::to_string(step) + ": " + std::to_string(wrong) + " are wrong");
  }
}

}  // namespace

TEST_CASE("A group that is announced in several decisions comes out right when its bit is evicted between them",
          "[.][slow]") {
  const int capacity = GENERATE(1, 1024);
  const CapturedLog log;
  run_job(
      2, [&](Session& session, Problems& problems) { run_long_group(session, problems, 16); },
      [&](config::RuntimeConfig& config) {
        config.cache_capacity = capacity;
        config.fusion_threshold = 1024;
        config.log_level = LogLevel::kDebug;
      });
  CHECK(log.count("a group's bit is evicted before all of it is announced") > 0);
}
