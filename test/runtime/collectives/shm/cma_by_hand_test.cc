// What one rank makes of another that is driven by hand: how it leaves, and what becomes of its memory.
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <future>

#include "runtime/base/deadline.h"
#include "runtime/base/futex.h"
#include "runtime/collectives/shm/rounds.h"
#include "test/runtime/collectives/shm/cma_members.h"

namespace hvd::collectives {
namespace {

constexpr std::int64_t kFew = 5000;

template <typename Condition>
void wait_until(const Condition& is_true) {
  const Deadline patience = Deadline::after(kPatience);
  while (!is_true() && !patience.expired()) std::this_thread::yield();
  REQUIRE(is_true());
}

// Rank 1 of two: what it says in shared memory, the tensor that it names, and the bytes that name its process.
class NamedByHand {
 public:
  explicit NamedByHand(const ShmRanks& ranks)
      : region_(ranks.segment().region(0)),
        tensor_(
            static_cast<float*>(::mmap(nullptr, kMapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    fill(1, tensor_, kFew);
    name_.process = ::getpid();
    name_.address = reinterpret_cast<const std::byte*>(nonce_.data());
    name_.nonce = nonce_ = {1, 2, 3};
  }
  ~NamedByHand() { ::munmap(tensor_, kMapped); }
  NamedByHand(const NamedByHand&) = delete;
  NamedByHand& operator=(const NamedByHand&) = delete;

  void announce() {
    std::byte* const slot = region_.slot(1, 1);
    std::memcpy(slot, &name_, sizeof(name_));
    const std::array<float*, 2> places{tensor_, tensor_};
    std::memcpy(slot + sizeof(name_), places.data(), sizeof(places));
    line(1).named = 1;
    mark(Rounds::kStaged, 1);
    mark(Rounds::kDone, 1);
  }
  // That it can read the other: not before the other has read what was announced.
  void agree() {
    wait_until([&] { return line(0).marks[Rounds::kStaged] == 2; });
    const std::uint64_t verdict = 1;
    std::memcpy(region_.slot(1, 2), &verdict, sizeof(verdict));
    mark(Rounds::kStaged, 2);
  }
  void mark(Rounds::Mark mark, std::uint64_t round) {
    line(1).marks[mark] = round;
    ring(line(0).bell);  // the other may have gone to sleep
  }
  void leave() { line(1).has_left = 1; }
  void forbid_tensor() { REQUIRE(::mprotect(tensor_, kMapped, PROT_NONE) == 0); }
  void change_nonce() { nonce_[0] = 9; }
  // Its own slice, the second half.
  void put_result() {
    for (std::int64_t i = kFew / 2 - 16; i < kFew; ++i) tensor_[i] = sum_at(2, i);
  }
  std::uint64_t mark_of_other(Rounds::Mark mark) const { return line(0).marks[mark]; }
  std::uint64_t verdict_of_other() const {
    std::uint64_t verdict = 9;
    std::memcpy(&verdict, region_.slot(0, 2), sizeof(verdict));
    return verdict;
  }
  bool has_other_left() const { return line(0).has_left == 1; }

 private:
  static constexpr std::size_t kMapped = std::size_t{1} << 16;
  ShmLine& line(int member) const { return region_.lines[member]; }

  const ShmRegion region_;
  float* const tensor_;
  ProcessName::Nonce nonce_{};
  ProcessName name_;
};

// Rank 0, in a call of its own backend.
class Reader {
 public:
  explicit Reader(const ShmRanks& ranks) : backend_(ranks.backend(ranks.all(), 0)) {
    fill(0, data_.data(), kFew);
    call_ = std::async(std::launch::async, [this] {
      return run_call(*backend_, {.op = OpType::kAllreduce, .output = data_.data(), .count = kFew});
    });
  }
  ShmBackend& backend() { return *backend_; }
  bool waits_for_the_other() {
    wait_until([&] { return !backend_->progress().waits_for.empty(); });
    return call_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  }
  Status end() {
    REQUIRE(call_.wait_for(kPatience) == std::future_status::ready);
    return call_.get();
  }
  bool has_sums() const { return holds_sums(2, data_.data(), kFew); }

 private:
  std::vector<float> data_ = std::vector<float>(kFew);
  std::unique_ptr<ShmBackend> backend_;
  std::future<Status> call_;
};

struct Pair {
  const ShmRanks ranks{2, 0, [](int) { return CmaOptions{.use = true}; }};
  NamedByHand other{ranks};
  Reader reader{ranks};
};

TEST_CASE("A rank reads its slice of the other's tensor, then the other's result", "[multi][collectives]") {
  Pair pair;
  pair.other.announce();
  pair.other.agree();
  wait_until([&] { return pair.other.mark_of_other(Rounds::kReduced) == 2; });
  pair.other.put_result();
  pair.other.mark(Rounds::kReduced, 2);
  CHECK(pair.reader.waits_for_the_other());  // who may still read its tensor
  pair.other.mark(Rounds::kDone, 2);
  CHECK(pair.reader.end().to_string() == "ok");
  CHECK(pair.reader.has_sums());
}

TEST_CASE("No reading ends well whose process has changed its name", "[multi][collectives]") {
  Pair pair;
  pair.other.announce();
  pair.other.agree();
  wait_until([&] { return pair.other.mark_of_other(Rounds::kReduced) == 2; });
  pair.other.change_nonce();
  pair.other.mark(Rounds::kReduced, 2);
  pair.other.mark(Rounds::kDone, 2);
  CHECK(pair.reader.end().to_string() == "peer lost: rank 1 has ended in the middle of an allreduce");
  CHECK(pair.other.mark_of_other(Rounds::kDone) == 1);
  CHECK(pair.other.has_other_left());
}

TEST_CASE("No reading ends well that may have read tensors of a rank whose call failed", "[multi][collectives]") {
  const bool is_gone = GENERATE(false, true);  // the memory
  Pair pair;
  pair.other.announce();
  pair.other.agree();
  wait_until([&] { return pair.other.mark_of_other(Rounds::kReduced) == 2; });
  pair.other.leave();
  if (is_gone) pair.other.forbid_tensor();
  pair.other.mark(Rounds::kReduced, 2);
  pair.other.mark(Rounds::kDone, 2);
  CHECK(pair.reader.waits_for_the_other());
  CHECK_FALSE(pair.other.has_other_left());
  pair.reader.backend().abort(Status::peer_lost("rank 1 is gone"));
  CHECK(pair.reader.end().message() == "rank 1 is gone");
  CHECK(pair.other.has_other_left());
}

TEST_CASE("Memory that goes in the middle is the loss of its rank", "[multi][collectives]") {
  const bool has_ended = GENERATE(false, true);
  Pair pair;
  pair.other.announce();
  pair.other.agree();
  wait_until([&] { return pair.other.mark_of_other(Rounds::kReduced) == 2; });
  pair.other.forbid_tensor();
  if (has_ended) pair.other.change_nonce();
  pair.other.mark(Rounds::kReduced, 2);
  CHECK(pair.reader.end().to_string() == (has_ended ? "peer lost: rank 1 has ended in the middle of an allreduce"
                                                    : "peer lost: reading the memory of rank 1: Bad address"));
}

TEST_CASE("Memory that can't be read is found before anybody has begun", "[multi][collectives]") {
  Pair pair;
  pair.other.forbid_tensor();
  pair.other.announce();
  pair.other.agree();
  wait_until([&] { return pair.other.mark_of_other(Rounds::kStaged) == 3; });  // it stages
  CHECK(pair.other.verdict_of_other() == 0);
  CHECK(pair.other.mark_of_other(Rounds::kReduced) == 0);
  pair.reader.backend().abort(Status::aborted("enough"));
  CHECK(pair.reader.end().message() == "enough");
}

}  // namespace
}  // namespace hvd::collectives
