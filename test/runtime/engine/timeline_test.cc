// The timeline of real sessions: what rank 0 sees, and that the others are not disturbed.
#include <barrier>
#include <catch2/catch.hpp>
#include <set>

#include "test/runtime/engine/job_support.h"
#include "test/support/trace_reader.h"

using namespace hvd;
using namespace hvd::test;
using Line = std::vector<std::string>;

namespace {

using Values = std::vector<float>;

void sum(Session& session, Problems& problems, const std::string& name, int times = 1, std::size_t elements = 3) {
  for (int i = 0; i < times; ++i) {
    Values data(elements, 1.0F);
    problems.expect_ok(wait(session.enqueue(allreduce(name, data))), name);
    problems.expect(data == Values(elements, static_cast<float>(session.topology().size)), name + ": a wrong sum");
  }
}

// The operations on a line, each without its marks, which `ranks` gets.
std::vector<Line> uses(const Line& line, std::vector<std::set<std::string>>& ranks) {
  std::vector<Line> found;
  for (const std::string& event : line) {
    if (event.starts_with("NEGOTIATE_")) {
      found.emplace_back();
      ranks.emplace_back();
    }
    const bool is_mark = !event.empty() && std::isdigit(static_cast<unsigned char>(event[0])) != 0;
    if (found.empty()) continue;
    if (is_mark) {
      ranks.back().insert(event);
    } else {
      found.back().push_back(event);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("A timeline shows each use of a tensor, cached or not, with every rank", "[multi][engine]") {
  const int size = GENERATE(1, 2, 3);
  const TempFolder folder;
  run_job(
      size, [&](Session& session, Problems& problems) { sum(session, problems, "allreduce.x", 20); },
      [&](config::RuntimeConfig& config) {
        config.timeline = folder / "t.json";
        config.timeline_mark_cycles = true;
      });
  const TraceReader trace = TraceReader::of_file(folder / "t.json");
  CHECK(trace.open().empty());
  CHECK(trace.marks("CYCLE_START") >= 20);
  std::vector<std::set<std::string>> ranks;
  const std::vector<Line> all = uses(trace.line("allreduce.x"), ranks);
  REQUIRE(all.size() == 20);
  const std::set<std::string> everybody = size == 1   ? std::set<std::string>{"0"}
                                          : size == 2 ? std::set<std::string>{"0", "1"}
                                                      : std::set<std::string>{"0", "1", "2"};
  for (const auto& each : ranks) CHECK(each == everybody);
  const std::string backend = size == 1 ? "LOCAL_ALLREDUCE" : "SHM_ALLREDUCE";
  CHECK(all.front() == Line{"NEGOTIATE_ALLREDUCE", "/", "ALLREDUCE", "QUEUE", "/", backend, "/", "/"});
  for (const auto& result : trace.results("allreduce.x")) {
    CHECK(result == nlohmann::json({{"dtype", "float32"}, {"shape", "[3]"}}));
  }
}

TEST_CASE("A timeline shows the ranks for which others speak, of cached tensors and of others", "[multi][engine]") {
  constexpr int kSize = 12;  // more than the root has children
  const TempFolder folder;
  run_job(
      kSize,
      [&](Session& session, Problems& problems) {
        sum(session, problems, "small", 4);
        sum(session, problems, "large", 4, 1000);  // too large for the tree
        for (int i = 0; i < 3; ++i) sum(session, problems, "once." + std::to_string(i));
      },
      [&](config::RuntimeConfig& config) { config.timeline = folder / "t.json"; });
  const TraceReader trace = TraceReader::of_file(folder / "t.json");
  CHECK(trace.open().empty());
  std::set<std::string> everybody;
  for (int rank = 0; rank < kSize; ++rank) everybody.insert(std::to_string(rank));
  std::vector<std::set<std::string>> ranks;
  for (const char* const name : {"small", "large"}) CHECK(uses(trace.line(name), ranks).size() == 4);
  for (int i = 0; i < 3; ++i) CHECK(uses(trace.line("once." + std::to_string(i)), ranks).size() == 1);
  for (const auto& each : ranks) CHECK(each == everybody);
}

TEST_CASE("A timeline shows every kind of operation, and what a group is packed into", "[multi][engine]") {
  const bool has_shm = GENERATE(false, true);
  const TempFolder folder;
  std::barrier all(2);
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        session.start_timeline(folder / "t.json", false);
        all.arrive_and_wait();
        Values a(5, 1.0F);
        Values b(7, 1.0F);
        const auto group = session.enqueue_group({allreduce("a", a), allreduce("b", b)}).value();
        for (const HandlePtr& handle : group) problems.expect_ok(wait(handle), "a group");
        Values gathered;
        problems.expect_ok(wait(session.enqueue(allgather("gather", a, gathered))), "allgather");
        Operation broadcast = allreduce("broadcast", a);
        broadcast.op = OpType::kBroadcast;
        broadcast.root_rank = 1;
        problems.expect_ok(wait(session.enqueue(broadcast)), "broadcast");
        Operation alltoall = allgather("alltoall", b, gathered);
        alltoall.op = OpType::kAlltoall;
        alltoall.splits = {3, 4};
        problems.expect_ok(wait(session.enqueue(alltoall)), "alltoall");
        Operation scatter = allgather("scatter", a, gathered);
        scatter.op = OpType::kReducescatter;
        problems.expect_ok(wait(session.enqueue(scatter)), "reducescatter");
        Values parts[4];
        for (const OpType op : {OpType::kAllgather, OpType::kReducescatter}) {
          const bool is_gather = op == OpType::kAllgather;
          std::vector<Operation> together = {allgather(is_gather ? "g1" : "s1", a, parts[is_gather ? 0 : 2]),
                                             allgather(is_gather ? "g2" : "s2", b, parts[is_gather ? 1 : 3])};
          for (Operation& operation : together) operation.op = op;
          const auto handles = session.enqueue_group(std::move(together)).value();
          for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "a group of results");
        }
        problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kBarrier))), "barrier");
        problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
        Operation unlike = allreduce("unlike", session.topology().rank == 0 ? a : b);
        problems.expect_code(wait(session.enqueue(unlike)), StatusCode::kPrecondition, "shape", "unlike");
        session.stop_timeline();
      },
      [&](config::RuntimeConfig& config) { config.shared_memory = has_shm; });
  const TraceReader trace = TraceReader::of_file(folder / "t.json");
  CHECK(trace.open().empty());
  CHECK(trace.marks("CYCLE_START") == 0);
  std::vector<std::set<std::string>> ranks;
  const auto only = [&](const std::string& name) {
    const std::vector<Line> found = uses(trace.line(name), ranks);
    return found.size() == 1 ? found.front() : Line{"used " + std::to_string(found.size()) + " times"};
  };
  const std::string backend = has_shm ? "SHM_" : "GLOO_";
  if (!has_shm) {
    CHECK(only("a") == Line{"NEGOTIATE_ALLREDUCE", "/", "ALLREDUCE", "QUEUE", "/", "MEMCPY_IN_FUSION_BUFFER", "/",
                            "GLOO_ALLREDUCE", "/", "MEMCPY_OUT_FUSION_BUFFER", "/", "/"});
    for (const auto& [name, op] : {std::pair("g2", "ALLGATHER"), std::pair("s2", "REDUCESCATTER")}) {
      CHECK(only(name) == Line{std::string("NEGOTIATE_") + op, "/", op, "QUEUE", "/", "ALLOCATE_OUTPUT", "/",
                               "MEMCPY_IN_FUSION_BUFFER", "/", std::string("GLOO_") + op, "/",
                               "MEMCPY_OUT_FUSION_BUFFER", "/", "/"});
    }
  }
  CHECK(only("gather") == Line{"NEGOTIATE_ALLGATHER", "/", "ALLGATHER", "QUEUE", "/", "ALLOCATE_OUTPUT", "/",
                               backend + "ALLGATHER", "/", "/"});
  CHECK(only("broadcast") == Line{"NEGOTIATE_BROADCAST", "/", "BROADCAST", "QUEUE", "/", backend + "BCAST", "/", "/"});
  const std::string exchange = has_shm ? "SHM_ALLTOALL" : "MPI_ALLTOALL";
  CHECK(only("alltoall") == Line{"NEGOTIATE_ALLTOALL", "/", "ALLTOALL", "QUEUE", "/", exchange, "/", "ALLOCATE_OUTPUT",
                                 "/", exchange, "/", "/"});
  CHECK(only("scatter") == Line{"NEGOTIATE_REDUCESCATTER", "/", "REDUCESCATTER", "QUEUE", "/", "ALLOCATE_OUTPUT", "/",
                                backend + "REDUCESCATTER", "/", "/"});
  CHECK(only("barrier.noname") == Line{"NEGOTIATE_BARRIER", "/", "BARRIER", "/"});
  CHECK(only("join.noname") == Line{"NEGOTIATE_JOIN", "/", "JOIN", "/"});
  CHECK(trace.results("scatter").at(0).at("shape") == "[3]");
  CHECK(trace.results("unlike").at(0).at("error").get<std::string>().find("shape") != std::string::npos);
}

TEST_CASE("What others run when rank 0 has joined begins and ends", "[multi][engine]") {
  const TempFolder folder;
  run_job(
      2,
      [&](Session& session, Problems& problems) {
        const bool is_first = session.topology().rank == 0;
        for (int i = 0; i < 3 && !is_first; ++i) {
          Values data(3, 1.0F);
          problems.expect_ok(wait(session.enqueue(allreduce("x", data))), "x");
        }
        problems.expect_ok(wait(session.enqueue(without_tensor(OpType::kJoin))), "join");
      },
      [&](config::RuntimeConfig& config) { config.timeline = folder / "t.json"; });
  const TraceReader trace = TraceReader::of_file(folder / "t.json");
  std::vector<std::set<std::string>> ranks;
  CHECK(uses(trace.line("x"), ranks) == std::vector(3, Line{"NEGOTIATE_ALLREDUCE", "/", "ALLREDUCE", "/"}));
  CHECK(trace.results("x").size() == 3);
}

TEST_CASE("A timeline names what goes host by host", "[multi][engine]") {
  const TempFolder folder;
  run_job(
      4, [&](Session& session, Problems& problems) { sum(session, problems, "x", 2, 100'000); },
      [&](config::RuntimeConfig& config) {
        config.hostname = config.rank < 2 ? "a" : "b";
        config.timeline = folder / "t.json";
      });
  std::vector<std::set<std::string>> ranks;
  const Line expected{"NEGOTIATE_ALLREDUCE", "/", "ALLREDUCE", "QUEUE", "/", "HIERARCHICAL_ALLREDUCE", "/", "/"};
  CHECK(uses(TraceReader::of_file(folder / "t.json").line("x"), ranks) == std::vector(2, expected));
}

TEST_CASE("Only rank 0 writes, and of the sets that it is in", "[multi][engine]") {
  const TempFolder folder;
  std::barrier all(3);
  run_job(3, [&](Session& session, Problems& problems) {
    const int rank = session.topology().rank;
    session.start_timeline(folder / std::to_string(rank), true);
    const auto with = session.add_process_set({0, 1});
    problems.expect_ok(wait(with), "a set");
    const auto without = session.add_process_set({1, 2});
    problems.expect_ok(wait(without), "another set");
    all.arrive_and_wait();
    for (int i = 0; i < 3; ++i) {
      Values data(3, 1.0F);
      for (const auto& [set, members] : {std::pair(with, std::set{0, 1}), std::pair(without, std::set{1, 2})}) {
        if (!members.contains(rank)) continue;
        const auto id = static_cast<std::int32_t>(set.value()->value());
        const std::string name = members.contains(0) ? "with" : "without";
        problems.expect_ok(wait(session.enqueue(allreduce(name, data, ReduceOp::kSum, id))), name);
      }
    }
    session.stop_timeline();
    all.arrive_and_wait();
  });
  CHECK_FALSE(std::filesystem::exists(folder / "1"));
  CHECK_FALSE(std::filesystem::exists(folder / "2"));
  const TraceReader trace = TraceReader::of_file(folder / "0");
  CHECK(trace.pid_of("without") == -1);
  std::vector<std::set<std::string>> ranks;
  CHECK(uses(trace.line("with"), ranks).size() == 3);
  for (const auto& each : ranks) CHECK(each == std::set<std::string>{"0", "1"});
}

TEST_CASE("After a timeline tensors are exchanged in shared memory again", "[multi][engine]") {
  const TempFolder folder;
  std::barrier all(2);
  run_job(2, [&](Session& session, Problems& problems) {
    const auto work = [&] {
      sum(session, problems, "x", 30);
      Values left(2, 1.0F);
      Values right(7, 1.0F);
      for (int i = 0; i < 30; ++i) {
        const auto handles = session.enqueue_group({allreduce("left", left), allreduce("right", right)}).value();
        for (const HandlePtr& handle : handles) problems.expect_ok(wait(handle), "a group");
      }
    };
    work();
    for (int i = 0; i < 3; ++i) {
      all.arrive_and_wait();
      session.start_timeline(folder / std::to_string(i), true);
      all.arrive_and_wait();
      work();
      session.stop_timeline();
      all.arrive_and_wait();
      work();
    }
    problems.expect(fewest_messages(session, all, work, 5) == 0, "messages");
  });
  for (int i = 0; i < 3; ++i) {
    std::vector<std::set<std::string>> ranks;
    const TraceReader trace = TraceReader::of_file(folder / std::to_string(i));
    CHECK(uses(trace.line("x"), ranks).size() == 30);
    CHECK(uses(trace.line("right"), ranks).size() == 30);
    CHECK(trace.marks("CYCLE_START") > 0);
  }
}
