// Which way private tensors go is one choice of all members, and what can't be read is found before or ends the call.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>

#include "test/runtime/collectives/shm/cma_members.h"

namespace hvd::collectives {
namespace {

constexpr std::int64_t kCount = 300'001;  // a few pieces for each of three members
constexpr int kSize = 3;

// What each rank reads, and how often: reading number `number` of the rank, from 1, goes as `f` says.
using Reading =
    std::function<ssize_t(int number, pid_t process, const iovec* to, const iovec* from, unsigned long count)>;

ssize_t read_on(pid_t process, const iovec* to, const iovec* from, unsigned long count) {
  return ::process_vm_readv(process, to, count, from, count, 0);
}

class Readings {
 public:
  explicit Readings(Reading f) : f_(std::move(f)) {}
  ReadProcess of_rank() {
    return [this](pid_t process, const iovec* to, unsigned long count, const iovec* from, unsigned long,
                  unsigned long) { return f_(++number_, process, to, from, count); };
  }
  int number() const { return number_; }

 private:
  const Reading f_;
  std::atomic<int> number_{0};
};

// Rank 1 reads as `f` says, the others as always.
ShmRanks::CmaOfRank with_rank_1(Readings& readings) {
  return [&readings](int rank) {
    return rank == 1 ? CmaOptions{.use = true, .read = readings.of_rank()} : CmaOptions{.use = true};
  };
}

TEST_CASE("Private tensors are read in other processes where all members are told so", "[multi][collectives]") {
  const int size = GENERATE(2, 3, 5);
  const CmaMembers members(size, [](int) { return CmaOptions{.use = true}; });
  for (const std::int64_t count : {std::int64_t{2049}, kCount, std::int64_t{2'000'003}}) {
    CHECK(all_went(members.allreduce(count), "cma"));
  }
  CHECK(all_went(members.allreduce(2048), "staged"));  // 8 KiB: each reduces all
}

TEST_CASE("Private tensors are staged where one member does not read, or has its own in shared memory",
          "[multi][collectives]") {
  const CmaMembers members(kSize, [](int rank) { return CmaOptions{.use = rank != 2}; });
  CHECK(all_went(members.allreduce(kCount), "staged"));
  const CmaMembers readers(kSize, [](int) { return CmaOptions{.use = true}; });
  const auto in_arena_of = [&](int owner) {
    return [&readers, owner](int rank, std::size_t bytes) {
      return rank == owner ? readers.ranks().arena(rank).take(bytes) : CmaMembers::heap(rank, bytes);
    };
  };
  CHECK(all_went(readers.allreduce(kCount, in_arena_of(1)), "staged"));
  CHECK(all_went(readers.allreduce(kCount), "cma"));
  CHECK(all_went(readers.allreduce(kCount, in_arena_of(0)), "staged"));
  const auto in_arenas = [&](int rank, std::size_t bytes) { return readers.ranks().arena(rank).take(bytes); };
  CHECK(all_went(readers.allreduce(kCount, in_arenas), "direct"));
  CHECK(all_went(readers.allreduce(kCount), "cma"));
}

TEST_CASE("Whether tensors of a list overlap what another of them writes", "[unit][collectives]") {
  std::vector<std::byte> memory(400);
  std::byte* const x = memory.data();
  std::byte* const y = x + 100;
  std::byte* const z = x + 200;
  struct Tensor {
    std::byte* input;
    std::byte* output;
  };
  const auto is_disjoint = [](const std::vector<Tensor>& tensors) {
    shm::TensorStream stream;
    for (const Tensor& tensor : tensors) stream.add(tensor.input, tensor.output, 100);
    return stream.is_disjoint();
  };
  CHECK(is_disjoint({}));
  CHECK(is_disjoint({{x, x}}));
  CHECK(is_disjoint({{x, y}}));
  CHECK(is_disjoint({{z, z}, {y, y}, {x, x}}));
  CHECK(is_disjoint({{x, y}, {x, z}}));  // both read it
  CHECK(is_disjoint({{x, z}, {x + 50, x + 300}}));
  CHECK_FALSE(is_disjoint({{x, x + 1}}));
  CHECK_FALSE(is_disjoint({{x + 99, x}}));
  CHECK_FALSE(is_disjoint({{x, y}, {x, x}}));
  CHECK_FALSE(is_disjoint({{x, x}, {x, y}}));
  CHECK_FALSE(is_disjoint({{x, x}, {x, x}}));
  CHECK_FALSE(is_disjoint({{x, z}, {y, z + 99}}));
  CHECK_FALSE(is_disjoint({{x, z}, {x + 150, y + 150}}));
  CHECK_FALSE(is_disjoint({{x, x + 300}, {z, z}, {z + 50, y}}));
}

TEST_CASE("A list whose tensors overlap what another of them writes is staged", "[multi][collectives]") {
  const CmaMembers members(2, [](int) { return CmaOptions{.use = true}; });
  std::vector<std::vector<float>> xs(2, std::vector<float>(kCount));
  std::vector<std::vector<float>> ys = xs;
  using Tensors = std::vector<Segment>;
  const auto went = [&](const std::string& path, const std::function<Tensors(float* x, float* y)>& tensors) {
    for (std::size_t rank = 0; rank < xs.size(); ++rank) fill(static_cast<int>(rank), xs[rank].data(), kCount);
    const auto outcomes = members.allreduce_list([&](int rank) {
      return tensors(xs[static_cast<std::size_t>(rank)].data(), ys[static_cast<std::size_t>(rank)].data());
    });
    return std::ranges::all_of(outcomes, [&](const Outcome& o) { return o.status.is_ok() && o.path == path; });
  };
  CHECK(went("staged", [](float* x, float* y) {
    return Tensors{{.input = x, .output = y, .count = kCount}, {.input = x, .output = x, .count = kCount}};
  }));
  for (std::size_t rank = 0; rank < xs.size(); ++rank) {
    CHECK(holds_sums(2, xs[rank].data(), kCount));
    CHECK(holds_sums(2, ys[rank].data(), kCount));
  }
  CHECK(went("staged", [](float* x, float*) {
    return Tensors{{.input = x, .output = x, .count = kCount}, {.input = x, .output = x, .count = kCount}};
  }));
  CHECK(went("cma", [](float* x, float* y) {
    return Tensors{{.input = x, .output = x, .count = kCount}, {.input = y, .output = y, .count = kCount}};
  }));
}

TEST_CASE("Where one member can't read another, all stage, and nobody tries again", "[multi][collectives]") {
  // Of the others' process and tensors: 1, 3 and 2, 4.
  const int failing = GENERATE(1, 2, 3, 4);
  const int error = GENERATE(EPERM, ESRCH, EFAULT, 0);
  Readings readings([&](int number, pid_t process, const iovec* to, const iovec* from, unsigned long count) {
    const ssize_t got = read_on(process, to, from, count);
    if (number != failing) return got;
    if (error == 0) static_cast<std::byte*>(to[0].iov_base)[0] ^= std::byte{1};  // another process with that number
    errno = error;
    return error == 0 ? got : ssize_t{-1};
  });
  if (error == 0 && failing % 2 == 0) return;  // bytes of tensors are not looked at
  INFO("reading " << failing << ", errno " << error);
  const CmaMembers members(kSize, with_rank_1(readings));
  CHECK(all_went(members.allreduce(kCount), "staged"));
  CHECK(all_went(members.allreduce(kCount), "staged"));
  CHECK(readings.number() == failing);
}

TEST_CASE("What the kernel reads in several goes is read whole", "[multi][collectives]") {
  Readings readings([](int number, pid_t process, const iovec* to, const iovec* from, unsigned long) {
    if (number % 5 == 0) {
      errno = EINTR;
      return ssize_t{-1};
    }
    iovec some = to[0];
    iovec there = from[0];
    some.iov_len = there.iov_len = std::min<std::size_t>(some.iov_len, 9973);
    return read_on(process, &some, &there, 1);
  });
  const CmaMembers members(kSize, with_rank_1(readings));
  CHECK(all_went(members.allreduce(kCount), "cma"));
}

TEST_CASE("A reading that fails in the middle ends the call on all members", "[multi][collectives]") {
  // Each reads its slice of the others in two pieces, then takes their slices in two, and looks for their processes.
  const int failing = GENERATE(5, 6, 8, 9, 11, 12, 13, 14);
  const int error = GENERATE_COPY(EFAULT, 0, ESRCH);
  Readings readings([&](int number, pid_t process, const iovec* to, const iovec* from, unsigned long count) {
    if (number != failing) return read_on(process, to, from, count);
    errno = error;
    return error == 0 ? ssize_t{0} : ssize_t{-1};
  });
  INFO("reading " << failing << ", errno " << error);
  const CmaMembers members(kSize, with_rank_1(readings));
  const std::vector<Outcome> outcomes = members.allreduce(kCount);
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.status.code() == StatusCode::kPeerLost);
    const std::string& message = outcome.status.message();
    CHECK((error == ESRCH ? message.find("has ended in the middle of an allreduce")
                          : message.find("reading the memory of rank ")) != std::string::npos);
  }
  CHECK(readings.number() == failing + (error == ESRCH ? 0 : 1));  // it looks once more for the process
}

TEST_CASE("A process whose number another one has in the end is taken for lost", "[multi][collectives]") {
  Readings readings([&](int number, pid_t process, const iovec* to, const iovec* from, unsigned long count) {
    const ssize_t got = read_on(process, to, from, count);
    if (number == 13) static_cast<std::byte*>(to[0].iov_base)[3] ^= std::byte{1};
    return got;
  });
  const CmaMembers members(kSize, with_rank_1(readings));
  for (const Outcome& outcome : members.allreduce(kCount)) {
    CHECK(outcome.status.to_string() == "peer lost: rank 0 has ended in the middle of an allreduce");
  }
}

TEST_CASE("Aborts that come at any moment of readings end them", "[multi][collectives]") {
  for (int turn = 0; turn < 50; ++turn) {
    const ShmRanks ranks(2, 0, [](int) { return CmaOptions{.use = true}; });
    std::atomic<int> ended{0};
    ranks.run(
        [&](int, ShmBackend& backend) {
          std::vector<float> data(static_cast<std::size_t>(turn % 2 == 0 ? 3000 : 200000));
          const CollectiveCall call{
              .op = OpType::kAllreduce, .output = data.data(), .count = static_cast<std::int64_t>(data.size())};
          while (run_call(backend, call).is_ok()) continue;
          ++ended;
        },
        turn);
    CHECK(ended == 2);
  }
}

}  // namespace
}  // namespace hvd::collectives
