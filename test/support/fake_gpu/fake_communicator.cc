#include "test/support/fake_gpu/fake_communicator.h"

#include <cstring>
#include <deque>
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

namespace {

using namespace hvd::kernels::reference;

// NCCL's own reductions, in its numbers.
constexpr int kProduct = 1;
constexpr int kMax = 2;
constexpr int kMin = 3;

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
  auto* const result = static_cast<T*>(output);
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    const auto* const input = static_cast<const T*>(inputs[r]);
    for (std::size_t i = 0; i < n; ++i) {
      const T value = scales ? of_two(kProduct, input[i], factor) : input[i];
      result[i] = r == 0 ? value : of_two(work.reduction, result[i], value);
    }
  }
  if constexpr (kIsInteger<T>) {
    const T divisor = work.reduction == kAverage ? static_cast<T>(inputs.size()) : T{1};
    for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<T>(result[i] / divisor);
  }
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

const void* at(const void* memory, std::size_t bytes) { return static_cast<const char*>(memory) + bytes; }
void* at(void* memory, std::size_t bytes) { return static_cast<char*>(memory) + bytes; }

// One piece of work that all members make together: what `rank` gets of it.
void move_one(const std::vector<Work>& work, std::size_t rank) {
  const Work& own = work[rank];
  const std::size_t bytes = own.count * size_of(own.type);
  std::vector<const void*> inputs;
  for (const Work& one : work) inputs.push_back(one.input);
  if (own.is("broadcast")) {
    std::memcpy(own.output, inputs[static_cast<std::size_t>(own.root)], bytes);
  } else if (own.is("all_gather")) {
    for (std::size_t r = 0; r < inputs.size(); ++r) std::memcpy(at(own.output, r * bytes), inputs[r], bytes);
  } else if (!own.is("reduce") || static_cast<std::size_t>(own.root) == rank) {
    for (const void*& input : inputs) input = at(input, own.is("reduce_scatter") ? rank * bytes : 0);
    reduce(inputs, own.output, own.count, own);
  }
}

}  // namespace

void carry_out(const std::vector<Call>& calls, int rank) {
  if (const std::string why = why_calls_differ(calls); !why.empty()) return breach(why);
  std::map<int, std::deque<Work>> sends;     // to this member, by who sends
  std::vector<Call> together(calls.size());  // pieces that all members make
  for (std::size_t r = 0; r < calls.size(); ++r) {
    for (const Work& one : calls[r]) {
      if (one.is_collective()) {
        together[r].push_back(one);
      } else if (one.is("send") && one.root == rank) {
        sends[static_cast<int>(r)].push_back(one);
      }
    }
  }
  const auto own = static_cast<std::size_t>(rank);
  for (std::size_t i = 0; i < together[own].size(); ++i) {
    std::vector<Work> piece;
    for (const Call& call : together) piece.push_back(call[i]);
    move_one(piece, own);
  }
  for (const Work& one : calls[own]) {
    if (!one.is("receive")) continue;
    auto& from = sends[one.root];
    std::memcpy(one.output, from.front().input, one.writes);
    from.pop_front();
  }
}

}  // namespace fake_nccl
