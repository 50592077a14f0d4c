#include "bench/cpp/arms.h"

#include <sched.h>

#include <numeric>

#include "runtime/collectives/kernels/kernels.h"
#include "runtime/collectives/shm/arena.h"
#include "runtime/collectives/shm/exchanged_tensor.h"
#include "runtime/collectives/shm/hand_over.h"
#include "runtime/collectives/shm/shm_backend.h"

namespace hvd::bench {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 10;  // stays in the first-level cache

// What the ranks share, handed over as a session does it.
collectives::SharedMemory share(const std::string& name, int rank, int size, Shared& shared) {
  collectives::HandOverSocket socket = require(collectives::HandOverSocket::open());
  const std::string key = name + "-memory/";
  require(shared.put(key + std::to_string(rank), Bytes(socket.name().begin(), socket.name().end())));
  collectives::HandOverOptions options{rank, std::vector<int>(static_cast<std::size_t>(size)),
                                       require(crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, 7))),
                                       Deadline::after(Millis(10000))};
  std::iota(options.ranks.begin(), options.ranks.end(), 0);
  const Bytes leader = require(shared.wait(key + "0", options.deadline));
  collectives::SharedMemory memory =
      require(rank == 0 ? collectives::hand_over(socket, options)
                        : collectives::take_over({leader.begin(), leader.end()}, options));
  if (memory.segment == nullptr) die("the ranks share no memory: " + memory.why_not);
  return memory;
}

// A tensor in this rank's arena. All ranks ask for the same sizes in the same order, so all have it at the same place.
class SharedTensor {
 public:
  explicit SharedTensor(const collectives::SharedMemory& memory) : memory_(memory) {}
  float* of_size(std::int64_t count) {
    if (count == count_) return own();
    tensor_.reset();
    tensor_ = memory_.arena->take(4 * static_cast<std::size_t>(count));
    if (tensor_ == nullptr) die("no room for " + std::to_string(count) + " elements in shared memory");
    count_ = count;
    return own();
  }
  float* own() const { return static_cast<float*>(tensor_.get()); }
  float* of(int member, int own_member) const {
    const auto place = static_cast<std::byte*>(tensor_.get()) - memory_.segment->arena(own_member).data();
    return reinterpret_cast<float*>(memory_.segment->arena(member).data() + place);
  }

 private:
  const collectives::SharedMemory memory_;
  std::shared_ptr<void> tensor_;
  std::int64_t count_ = -1;
};

// ShmBackend, which reduces tensors of arenas where they lie, and stages others.
class ShmArm final : public Arm {
 public:
  ShmArm(const std::string& name, int rank, int size, Shared& shared)
      : is_direct_(name == "ours_shared"),
        memory_(share(name, rank, size, shared)),
        tensor_(memory_),
        backend_(memory_, set_of(rank, size)) {}
  float* memory(std::int64_t count) override { return is_direct_ ? tensor_.of_size(count) : nullptr; }
  void run(float* data, std::int64_t count) override {
    backend_.start({.output = data, .count = count}, [](const Status& status) { require(status); });
  }

 private:
  static collectives::ShmSet set_of(int rank, int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    collectives::ShmSet set;
    set.ranks = std::move(ranks);
    set.own = rank;
    return set;
  }
  const bool is_direct_;
  const collectives::SharedMemory memory_;
  SharedTensor tensor_;
  collectives::ShmBackend backend_;
};

// Exchanged by the callers, who poll.
class ExchangeArm final : public Arm {
 public:
  ExchangeArm(const std::string& name, int rank, int size, Shared& shared)
      : memory_(share(name, rank, size, shared)),
        tensor_(std::make_shared<collectives::ExchangeSlots>(memory_.segment, memory_.segment->region(0), size, rank,
                                                             memory_.arena),
                0) {}
  void run(float* data, std::int64_t count) override {
    using State = collectives::ExchangedTensor::State;
    const std::size_t bytes = 4 * static_cast<std::size_t>(count);
    if (tensor_.bytes() != bytes && !tensor_.renew(bytes)) die("no more generations of a slot");
    tensor_.begin_use();
    State state = tensor_.come(data);
    for (int polls = 0; state == State::kOpen; ++polls, state = tensor_.look()) {
      if (polls > kPolls) sched_yield();
    }
    if (state != State::kComplete) die("no memory to lend for " + std::to_string(bytes) + " bytes");
    require(tensor_.reduce(DataType::kFloat32, ReduceOp::kSum, {}, data, data));
  }

 private:
  static constexpr int kPolls = 1000;
  const collectives::SharedMemory memory_;
  collectives::ExchangedTensor tensor_;
};

// Every rank writes its own tensor in shared memory once, reading it: as many loads and stores as an allreduce there
// needs at the least, none of them of another core's lines, and no meeting.
class InPlaceArm final : public Arm {
 public:
  InPlaceArm(const std::string& name, int rank, int size, Shared& shared) : tensor_(share(name, rank, size, shared)) {}
  float* memory(std::int64_t count) override { return tensor_.of_size(count); }
  void run(float* data, std::int64_t count) override {
    kernels::scale_copy(DataType::kFloat32, data, data, count, 0.5);
  }
  Result result() const override { return Result::kNone; }

 private:
  SharedTensor tensor_;
};

// The reduction alone: every rank adds its part of all tensors and writes it to all, and nobody waits for anybody.
class PartsArm final : public Arm {
 public:
  PartsArm(const std::string& name, int rank, int size, Shared& shared)
      : rank_(rank), size_(size), tensor_(share(name, rank, size, shared)) {}
  float* memory(std::int64_t count) override { return tensor_.of_size(count); }
  void run(float* /*data*/, std::int64_t count) override {
    constexpr std::int64_t kLine = 16;  // elements of a cache line
    const std::int64_t part = ((count + size_ - 1) / size_ + kLine - 1) / kLine * kLine;
    const std::int64_t end = std::min(count, (rank_ + 1) * part);
    constexpr std::int64_t kPiece = kPieceBytes / 4;
    for (std::int64_t at = rank_ * part; at < end; at += kPiece) reduce(at, std::min(kPiece, end - at));
  }

 private:
  void reduce(std::int64_t at, std::int64_t n) const {
    alignas(128) float sum[kPieceBytes / 4];
    for (int member = 1; member < size_; ++member) {
      const float* const left = member == 1 ? tensor_.of(0, rank_) + at : sum;
      kernels::reduce(DataType::kFloat32, ReduceOp::kSum, sum, left, tensor_.of(member, rank_) + at, n);
    }
    for (int member = 0; member < size_; ++member) std::copy_n(sum, n, tensor_.of(member, rank_) + at);
  }
  const int rank_;
  const int size_;
  SharedTensor tensor_;
};

class NothingArm final : public Arm {
 public:
  void run(float*, std::int64_t) override {}
  Result result() const override { return Result::kNone; }
};

}  // namespace

std::unique_ptr<Arm> make_shared_arm(const std::string& name, int rank, int size, Shared& shared) {
  if (name == "ours_shared" || name == "ours_staged") return std::make_unique<ShmArm>(name, rank, size, shared);
  if (name == "ours_exchanged") return std::make_unique<ExchangeArm>(name, rank, size, shared);
  if (name == "in_place") return std::make_unique<InPlaceArm>(name, rank, size, shared);
  if (name == "parts") return std::make_unique<PartsArm>(name, rank, size, shared);
  return name == "nothing" ? std::make_unique<NothingArm>() : nullptr;
}

}  // namespace hvd::bench
