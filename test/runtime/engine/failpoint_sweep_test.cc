// Every failpoint of a rank and of the rendezvous, one after another: three ranks as threads train over the real store
// and transport, something fails on one of them, and all begin anew until they have the right result.
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <span>

#include "rendezvous/protocol/bodies.h"
#include "runtime/base/failpoint.h"
#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"
#include "test/support/threads.h"

using namespace hvd;
using namespace hvd::test;
using failpoint::Kind;

namespace {

constexpr int kSize = 3;
constexpr int kMaxAttempts = 8;
constexpr std::size_t kLong = 200'000;  // goes round the ring
constexpr Millis kHang{30'000};

// Which sessions have ended well: all ranks go on until they had one that did on each of them.
class Outcomes {
 public:
  void failed(std::uint64_t epoch) {
    const std::scoped_lock lock(mutex_);
    failed_ = std::max(failed_, epoch);
    ++failures_;
    changed_.notify_all();
  }
  // False when another rank has failed in this session.
  bool all_succeed(int rank, std::uint64_t epoch) {
    std::unique_lock lock(mutex_);
    succeeded_[static_cast<std::size_t>(rank)] = epoch;
    changed_.notify_all();
    const auto all = [&] { return std::ranges::all_of(succeeded_, [&](std::uint64_t e) { return e == epoch; }); };
    changed_.wait(lock, [&] { return failed_ >= epoch || all(); });
    return all();
  }
  int failures() {
    const std::scoped_lock lock(mutex_);
    return failures_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t failed_ = 0;
  int failures_ = 0;
  std::array<std::uint64_t, kSize> succeeded_{};
};

// Each kind of collective once or twice. The first thing that fails, or "".
std::string train(Session& session) {
  const auto rank = static_cast<float>(session.topology().rank);
  for (const std::size_t count : {std::size_t{5}, kLong, std::size_t{5}}) {
    std::vector<float> data(count, rank + 1.0F);
    const Status summed = wait(session.enqueue(allreduce("sum" + std::to_string(count), data)));
    if (!summed.is_ok()) return summed.to_string();
    if (data != std::vector<float>(count, 6.0F)) return "wrong sum " + std::to_string(data[0]);
  }
  std::vector<float> left(10, 1.0F);
  std::vector<float> right(20, 2.0F);
  const auto group = session.enqueue_group({allreduce("left", left), allreduce("right", right)});
  if (!group.is_ok()) return group.status().to_string();
  for (const HandlePtr& handle : group.value()) {
    if (const Status fused = wait(handle); !fused.is_ok()) return fused.to_string();
  }
  if (left[9] != 3.0F || right[19] != 6.0F) return "wrong fused sum";
  std::vector<float> same(16, 4.0F);
  Operation adasum = allreduce("adasum", same);
  adasum.op = OpType::kAdasum;
  if (const Status added = wait(session.enqueue(std::move(adasum))); !added.is_ok()) return added.to_string();
  if (same[0] != 4.0F) return "wrong Adasum of equal vectors";
  std::vector<float> mine(2, rank);
  std::vector<float> all;
  if (const Status gathered = wait(session.enqueue(allgather("all", mine, all))); !gathered.is_ok()) {
    return gathered.to_string();
  }
  return all == std::vector<float>{0, 0, 1, 1, 2, 2} ? "" : "wrong gathering";
}

// What the ranks of a job talk through.
enum class Path { kSockets, kSharedMemory, kTls };
constexpr std::array kPaths{Path::kSockets, Path::kSharedMemory, Path::kTls};

std::string name_of(Path path) {
  return path == Path::kSockets ? "over sockets" : path == Path::kTls ? "over TLS" : "in shared memory";
}

// One job under what is armed.
class Trial {
 public:
  explicit Trial(Path path) : path_(path), job_(kSize, nullptr, path == Path::kTls) {}

  void run() {
    std::mutex mutex;
    std::condition_variable over;
    bool is_over = false;
    std::jthread guard([&] {
      std::unique_lock lock(mutex);
      if (over.wait_for(lock, kHang, [&] { return is_over; })) return;
      std::cerr << "a rank hangs" << std::endl;
      std::abort();  // the core shows where; threads that wait for ever cannot be joined
    });
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kSize; ++rank) ranks.emplace_back([this, rank] { be(rank); });
    ranks.clear();
    const std::scoped_lock lock(mutex);
    is_over = true;
    over.notify_all();
  }
  std::string problems() { return problems_.text(); }
  int failures() { return outcomes_.failures(); }

 private:
  void be(int rank) {
    config::RuntimeConfig config = job_.config(rank);
    config.elastic = true;
    config.shared_memory = path_ == Path::kSharedMemory;
    config.sockets_per_peer = path_ == Path::kTls ? 3 : 1;
    std::string last;
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      auto session = Session::start(config);
      if (!session.is_ok()) {  // as if it had died: the launcher tells the others
        last = session.status().to_string();
        outcomes_.failed(0);
        job_.server().publish(rendezvous::kLossScope, rendezvous::kLossKey, Bytes{'g', 'o', 'n', 'e'});
        continue;
      }
      const std::uint64_t epoch = session.value()->topology().epoch;
      const std::string failed = [&] {
        const OwnSession own(*session.value());
        return train(*session.value());
      }();
      session.value()->shutdown();
      session.value().reset();
      if (!failed.empty()) {
        last = failed;
        outcomes_.failed(epoch);
        problems_.expect(failed.rfind("wrong", 0) != 0, failed);
      } else if (outcomes_.all_succeed(rank, epoch)) {
        return;
      }
    }
    problems_.expect(false, "rank " + std::to_string(rank) + " never ended well; last: " + last);
  }

  const Path path_;
  JobFixture job_;
  Outcomes outcomes_;
  Problems problems_;
};

std::size_t entries(const char* folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}
std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("hvd-ranks") != std::string::npos ? 1 : 0;
  return count;
}

// What a process must not have more of after a job.
struct Holdings {
  std::size_t descriptors = entries("/proc/self/fd");
  int threads = living_threads();
  std::size_t shared = shared_mappings();
  bool operator==(const Holdings&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Holdings& held) {
  return out << held.descriptors << " descriptors, " << held.threads << " threads, " << held.shared << " mappings";
}

// One of the like, by the seed.
std::vector<std::string> actions(Kind kind, std::mt19937& random) {
  const auto one_of = [&](const char* a, const char* b) { return std::string(random() % 2 == 0 ? a : b); };
  switch (kind) {
    case Kind::kPlace: return {"delay:20"};
    case Kind::kReturn: return {one_of("error", "ECONNRESET")};
    case Kind::kCall: return {one_of("EMFILE", "ENOMEM")};
    case Kind::kIo: return {one_of("ECONNRESET", "error"), "short", "EINTR"};
  }
  return {};
}

// Of these nobody may notice anything.
bool is_harmless(const std::string& action) {
  return action == "short" || action == "EINTR" || action.rfind("delay", 0) == 0;
}

class Armed {
 public:
  explicit Armed(const std::string& text) { CHECK(failpoint::arm(text).to_string() == "ok"); }
  ~Armed() { CHECK(failpoint::arm("").is_ok()); }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
};

// The others are tried in real jobs: test/e2e/launcher/test_launcher_failpoints.py.
std::span<const failpoint::Row> rank_points() {
  const auto end = std::ranges::find(failpoint::kTable, failpoint::kFirstOfLauncher, &failpoint::Row::name);
  return {failpoint::kTable.begin(), end};
}

// How often a job without a fault passes each place.
using Passages = std::map<std::string, std::uint64_t, std::less<>>;
Passages passages(Path path) {
  Trial trial(path);
  const Armed armed("join.begin=delay:1@1000000");  // something that never comes, so that passages count
  trial.run();
  CHECK(trial.problems() == "");
  CHECK(trial.failures() == 0);
  Passages found;
  for (const failpoint::Row& row : rank_points()) found[std::string(row.name)] = failpoint::passages(row.name);
  return found;
}

void try_one(const std::string& text, Path path, bool harmless, const Holdings& before) {
  INFO(text << " " << name_of(path));
  {
    Trial trial(path);
    const Armed armed(text);
    trial.run();
    CHECK(trial.problems() == "");
    if (harmless) CHECK(trial.failures() == 0);
  }
  CHECK(Holdings() == before);
}

void sweep(unsigned seed) {
  std::mt19937 random(seed);
  std::map<Path, Passages> usual;
  for (const Path path : kPaths) usual[path] = passages(path);
  const Holdings before;
  for (const failpoint::Row& row : rank_points()) {
    for (const std::string& action : actions(row.kind, random)) {
      std::vector<Path> that_pass;
      for (const Path path : kPaths) {
        if (usual.at(path).at(std::string(row.name)) > 0) that_pass.push_back(path);
      }
      if (that_pass.empty()) continue;
      const Path path = that_pass[random() % that_pass.size()];
      const std::uint64_t passed = usual.at(path).at(std::string(row.name));
      std::string text = std::string(row.name) + "=" + action + "@" + std::to_string(1 + random() % passed);
      if (action == "short") text += "+";
      INFO("seed " << seed);
      try_one(text, path, is_harmless(action), before);
    }
  }
}

}  // namespace

TEST_CASE("A job passes every failpoint of its ranks and of the rendezvous", "[multi][failpoint]") {
  Passages all;
  for (const Path path : kPaths) {
    for (const auto& [name, count] : passages(path)) all[name] += count;
  }
  std::vector<std::string> never;
  for (const failpoint::Row& row : rank_points()) {
    if (all.at(std::string(row.name)) == 0) never.emplace_back(row.name);
  }
  // These need a fault, an agent, or a message that no neighbour has taken.
  CHECK(never == std::vector<std::string>{"agent.ask", "engine.lost"});
}

TEST_CASE("Whatever fails at whichever failpoint, all ranks begin anew and nothing is left", "[multi][failpoint]") {
  sweep(1);
}

TEST_CASE("Whichever thread of a session the system does not give, all ranks begin anew", "[multi][failpoint]") {
  const std::uint64_t threads = passages(Path::kSockets).at("thread.start");
  REQUIRE(threads >= 3U * kSize);  // engine, network, lane
  const Holdings before;
  for (std::uint64_t at = 1; at <= threads; ++at) {
    try_one("thread.start=EAGAIN@" + std::to_string(at), Path::kSockets, false, before);
  }
}

TEST_CASE("Many seeds of failures at failpoints", "[.][slow]") {
  const char* const text = std::getenv("HVD_SWEEP_SEEDS");
  const unsigned seeds = text == nullptr ? 20 : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
  for (unsigned seed = 2; seed < 2 + seeds; ++seed) sweep(seed);
}
