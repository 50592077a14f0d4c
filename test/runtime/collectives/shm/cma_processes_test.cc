// Ranks that are processes: what the kernel really reads, and what it says of a process that has ended.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <future>

#include "test/runtime/collectives/shm/cma_members.h"

namespace hvd::collectives {
namespace {

constexpr std::int64_t kMany = 600'001;

std::unique_ptr<ShmBackend> backend_of(int rank, std::shared_ptr<ShmSegment> segment, ReadProcess read) {
  return std::make_unique<ShmBackend>(
      SharedMemory{std::move(segment), ""},
      ShmSet{.ranks = {0, 1}, .own = rank, .why_not = "", .cma = {.use = true, .read = std::move(read)}});
}

// Beside its input, then in place.
std::string allreduce(int rank, ShmBackend& backend, std::int64_t count) {
  std::vector<float> input(static_cast<std::size_t>(count));
  std::vector<float> output(input.size());
  fill(rank, input.data(), count);
  CollectiveCall call{.op = OpType::kAllreduce, .input = input.data(), .output = output.data(), .count = count};
  const std::vector<float> before = input;
  Status status = run_call(backend, call);
  if (!status.is_ok()) return status.to_string();
  if (backend.path() != "cma") return "it went otherwise: " + std::string(backend.path());
  if (!holds_sums(2, output.data(), count)) return "a wrong sum beside the input";
  if (input != before) return "the input was written";
  call.output = input.data();
  status = run_call(backend, call);
  if (!status.is_ok()) return status.to_string();
  return holds_sums(2, input.data(), count) ? "" : "a wrong sum in place";
}

// A child is rank 1, this process rank 0.
class TwoProcesses {
 public:
  using Child = std::function<int(ShmBackend& backend)>;

  TwoProcesses(ReadProcess read_here, ReadProcess read_there, const Child& child) {
    auto [segment, fd] = ShmSegment::create(2).value();
    child_ = ::fork();
    if (child_ == 0) {  // it has no mapping, as that is not inherited
      const auto there = backend_of(1, ShmSegment::map(fd, 2).value(), std::move(read_there));
      ::_exit(child(*there));
    }
    here_ = backend_of(0, std::move(segment), std::move(read_here));
  }
  ~TwoProcesses() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  TwoProcesses(const TwoProcesses&) = delete;
  TwoProcesses& operator=(const TwoProcesses&) = delete;

  ShmBackend& here() { return *here_; }
  pid_t child() const { return child_; }
  int wait_for_child() {
    int status = -1;
    ::waitpid(std::exchange(child_, -1), &status, 0);
    return status;
  }

 private:
  pid_t child_ = -1;
  std::unique_ptr<ShmBackend> here_;
};

// Kills its process at reading number `number`.
ReadProcess killed_at(int number) {
  return [left = std::make_shared<int>(number)](pid_t process, const iovec* to, unsigned long count, const iovec* from,
                                                unsigned long, unsigned long) {
    if (--*left == 0) ::raise(SIGKILL);
    return ::process_vm_readv(process, to, count, from, count, 0);
  };
}

int run_once(ShmBackend& backend) { return allreduce(1, backend, kMany).empty() ? 0 : 1; }

TEST_CASE("A child does not have the name of the process that forked it", "[unit][collectives]") {
  const Result<OwnName> own = OwnName::make();
  REQUIRE(own.is_ok());
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  ProcessName name = own.value().name();
  CHECK(find_process(::process_vm_readv, name) == 0);
  name.process = child;
  CHECK(find_process(::process_vm_readv, name) == EIDRM);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(find_process(::process_vm_readv, name) == ESRCH);
}

TEST_CASE("Two processes reduce private tensors that each reads in the other", "[multi][collectives]") {
  constexpr std::array<std::int64_t, 3> kCounts{2049, 70'001, kMany};
  TwoProcesses ranks(::process_vm_readv, ::process_vm_readv, [&](ShmBackend& backend) {
    for (const std::int64_t count : kCounts) {
      if (!allreduce(1, backend, count).empty()) return 1;
    }
    return 0;
  });
  for (const std::int64_t count : kCounts) CHECK(allreduce(0, ranks.here(), count) == "");
  CHECK(ranks.wait_for_child() == 0);
}

TEST_CASE("A process that is killed while it reads leaves the other no result", "[multi][collectives]") {
  // It looks for the process, at its tensor, reads five pieces, takes five and looks for the process again.
  const int number = GENERATE(1, 2, 3, 7, 8, 12, 13);
  TwoProcesses ranks(::process_vm_readv, killed_at(number), run_once);
  auto call = std::async(std::launch::async, [&] { return allreduce(0, ranks.here(), kMany); });
  CHECK(WIFSIGNALED(ranks.wait_for_child()));
  ranks.here().abort(Status::peer_lost("rank 1 is gone"));  // as the session does, which hears of it
  REQUIRE(call.wait_for(kPatience) == std::future_status::ready);
  const std::string end = call.get();
  INFO("reading " << number);
  CHECK((end == "peer lost: rank 1 is gone" || end == "peer lost: rank 1 has ended in the middle of an allreduce"));
}

TEST_CASE("A process that has ended can't be read, which is its loss", "[multi][collectives]") {
  std::atomic<pid_t> child{-1};
  // Rank 0 goes on with its second piece when the child, which is killed at its own, has ended.
  const auto read = [&, number = std::make_shared<int>(0)](pid_t process, const iovec* to, unsigned long count,
                                                           const iovec* from, unsigned long, unsigned long) {
    siginfo_t end = {};
    if (++*number == 4) ::waitid(P_PID, static_cast<id_t>(child.load()), &end, WEXITED | WNOWAIT);
    return ::process_vm_readv(process, to, count, from, count, 0);
  };
  TwoProcesses ranks(read, killed_at(4), run_once);
  child = ranks.child();
  CHECK(allreduce(0, ranks.here(), kMany) == "peer lost: rank 1 has ended in the middle of an allreduce");
}

}  // namespace
}  // namespace hvd::collectives
