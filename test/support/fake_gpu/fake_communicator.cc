#include "test/support/fake_gpu/fake_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <type_traits>

#include "test/runtime/collectives/kernels/reference.h"
#include "test/support/fake_gpu/fake_nccl.h"

namespace fake_nccl {

World& world() {
  static auto* instance = new World;
  return *instance;
}

void breach(const std::string& what) {
  const std::lock_guard lock(world().mutex);
  world().breaches += what + "\n";
}

int enter(const char* name, int since) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  ++w.calls[name];
  if (w.version < since) w.breaches += std::string(name) + " in an NCCL that has no such function\n";
  const auto failure = w.failures.find(name);
  if (failure == w.failures.end() || failure->second.first-- > 0) return kSuccess;
  const int code = failure->second.second;
  w.failures.erase(failure);
  return code;
}

std::shared_ptr<Comm> comm_of(void* handle, const char* caller) {
  const std::lock_guard lock(world().mutex);
  const auto found = world().comms.find(handle);
  if (found != world().comms.end()) return found->second;
  world().breaches += std::string(caller) + " on a communicator that is not there\n";
  return nullptr;
}

bool is_ready(const Comm& comm) {
  const std::lock_guard lock(comm.group->mutex);
  if (!comm.group->aborted.empty()) return true;
  const int mine = comm.group->windows.contains(comm.rank) ? comm.group->windows.at(comm.rank) : 0;
  for (int rank = 0; rank < comm.group->size && mine > 0; ++rank) {
    if (!comm.group->windows.contains(rank) || comm.group->windows.at(rank) < mine) return false;
  }
  return comm.group->arrived == comm.group->size && !comm.group->fails;
}

namespace {

using namespace hvd::kernels::reference;

// NCCL's own reductions, in its numbers.
constexpr int kProduct = 1;
constexpr int kMax = 2;
constexpr int kMin = 3;
constexpr int kAverage = 4;

template <typename T>
constexpr bool kIsInteger = std::is_integral_v<T>;

// As NCCL's minimum and maximum of floats: the number beside a NaN.
template <typename T>
T of_two(int reduction, T a, T b) {
  if (reduction == kMin || reduction == kMax) {
    if (is_nan(a)) return b;
    if (is_nan(b)) return a;
  }
  using hvd::ReduceOp;
  return apply(reduction == kProduct ? ReduceOp::kProduct
               : reduction == kMax   ? ReduceOp::kMax
               : reduction == kMin   ? ReduceOp::kMin
                                     : ReduceOp::kSum,
               a, b);
}

template <typename T>
T scalar_in(double value) {
  if constexpr (kIsHalf<T>) return T::of(value);
  if constexpr (!kIsHalf<T>) return static_cast<T>(value);
}

// Each step ends in the elements' type, as on a GPU: nothing is kept wider until the end. An average is a sum of floats
// that were multiplied before, with 1/N in their own type; of integers it is the sum, divided.
template <typename T>
void reduce_as(const std::vector<const void*>& inputs, void* output, std::size_t n, const Work& work) {
  const bool scales_average = work.reduction == kAverage && !kIsInteger<T>;
  T factor{};
  if (work.reduction >= kFirstOwnReduction) std::memcpy(&factor, work.factor.data(), sizeof factor);
  if (scales_average) factor = scalar_in<T>(1.0 / static_cast<double>(inputs.size()));
  const bool scales = scales_average || work.reduction >= kFirstOwnReduction;
  std::vector<T> result(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      T value{};
      std::memcpy(&value, static_cast<const char*>(inputs[r]) + i * sizeof(T), sizeof value);
      if (scales) value = of_two(kProduct, value, factor);
      result[i] = r == 0 ? value : of_two(work.reduction, result[i], value);
    }
    if constexpr (kIsInteger<T>) {
      if (work.reduction == kAverage) result[i] = static_cast<T>(result[i] / static_cast<T>(inputs.size()));
    }
  }
  std::memcpy(output, result.data(), n * sizeof(T));
}

void reduce(const std::vector<const void*>& inputs, void* output, std::size_t n, const Work& work) {
  switch (work.type) {
    case 0: return reduce_as<std::int8_t>(inputs, output, n, work);
    case 1: return reduce_as<std::uint8_t>(inputs, output, n, work);
    case 2: return reduce_as<std::int32_t>(inputs, output, n, work);
    case 4: return reduce_as<std::int64_t>(inputs, output, n, work);
    case 6: return reduce_as<Float16>(inputs, output, n, work);
    case 7: return reduce_as<float>(inputs, output, n, work);
    case 8: return reduce_as<double>(inputs, output, n, work);
    case 9: return reduce_as<Bfloat16>(inputs, output, n, work);
    case 10: return reduce_as<Float8E4m3fn>(inputs, output, n, work);
    case 11: return reduce_as<Float8E5m2>(inputs, output, n, work);
    default: breach("the fake does not reduce type " + std::to_string(work.type));
  }
}

const char* at(const void* memory, std::size_t bytes) { return static_cast<const char*>(memory) + bytes; }

// One piece of work of all members, by rank.
void move_one(const std::vector<Work>& work) {
  const Work& first = work.front();
  const std::size_t bytes = first.count * size_of(first.type);
  std::vector<const void*> inputs;
  for (const Work& one : work) {
    if (!(one == first)) breach("members make different calls: " + one.kind + " and " + first.kind);
    inputs.push_back(one.input);
  }
  if (first.kind == "broadcast") {
    const std::vector<char> sent(at(inputs[static_cast<std::size_t>(first.root)], 0),
                                 at(inputs[static_cast<std::size_t>(first.root)], bytes));
    for (const Work& one : work) std::memcpy(one.output, sent.data(), bytes);
  } else if (first.kind == "all_gather") {
    std::vector<char> all;
    for (const void* input : inputs) all.insert(all.end(), at(input, 0), at(input, bytes));
    for (const Work& one : work) std::memcpy(one.output, all.data(), all.size());
  } else if (first.kind == "reduce") {
    reduce(inputs, work[static_cast<std::size_t>(first.root)].output, first.count, first);
  } else if (first.kind == "reduce_scatter") {
    std::vector<char> all(bytes * work.size());
    reduce(inputs, all.data(), first.count * work.size(), first);
    for (std::size_t r = 0; r < work.size(); ++r) std::memcpy(work[r].output, all.data() + r * bytes, bytes);
  } else {
    std::vector<char> all(bytes);
    reduce(inputs, all.data(), first.count, first);
    for (const Work& one : work) std::memcpy(one.output, all.data(), bytes);
  }
}

}  // namespace

void Group::move_bytes() {
  std::map<std::pair<int, int>, std::deque<Work>> sends;
  std::size_t together = 0;  // pieces that all members make
  for (const auto& [rank, call] : calls) {
    std::size_t own = 0;
    for (const Work& one : call) {
      if (one.kind == "send") sends[{rank, one.root}].push_back(one);
      if (one.kind != "send" && one.kind != "receive") ++own;
    }
    if (rank > 0 && own != together) breach("members make different numbers of calls in a group");
    together = own;
  }
  for (std::size_t i = 0; i < together; ++i) {
    std::vector<Work> piece;
    for (const auto& [rank, call] : calls) piece.push_back(call[i]);
    move_one(piece);
  }
  for (const auto& [rank, call] : calls) {
    for (const Work& one : call) {
      if (one.kind != "receive") continue;
      auto& from = sends[{one.root, rank}];
      if (from.empty() || from.front().count != one.count) {
        breach("a receive without its send");
      } else {
        std::memcpy(one.output, from.front().input, one.count);
        from.pop_front();
      }
    }
  }
  for (const auto& [pair, left] : sends) {
    if (!left.empty()) breach("a send without its receive");
  }
}

// As on a GPU whose multiprocessors are taken: until something ends there, or the own communicator is aborted.
void Group::take_room(int rank, int device) {
  for (;;) {
    {
      const std::scoped_lock lock(mutex, world().mutex);
      int& running = world().running[device];
      if (world().room == 0 || running < world().room || aborted.contains(rank)) {
        ++running;
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// In a stream: waits there for the others.
void Group::run(int rank, int device, const Call& call) {
  struct Room {
    int device;
    ~Room() {
      const std::lock_guard lock(world().mutex);
      --world().running[device];
    }
  };
  {
    const std::lock_guard lock(mutex);
    for (const Work& work : aborted.contains(rank) ? Call() : call) {
      if (work.reads > 0 && fake_cuda_owns(device, work.input, work.reads) == 0)
        breach(work.kind + " reads memory that was given back");
      if (work.writes > 0 && fake_cuda_owns(device, work.output, work.writes) == 0)
        breach(work.kind + " writes memory that was given back");
    }
  }
  take_room(rank, device);
  const Room room{device};
  std::unique_lock lock(mutex);
  const std::uint64_t mine = round;
  calls[rank] = call;
  if (static_cast<int>(calls.size()) == size && aborted.empty()) {
    move_bytes();
    calls.clear();
    ++round;
    changed.notify_all();
    return;
  }
  changed.wait(lock, [&] { return aborted.contains(rank) || round != mine; });
}

}  // namespace fake_nccl
