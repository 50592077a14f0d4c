// Adasum in shared memory, against the published rule.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

#include "test/runtime/collectives/adasum_reference.h"
#include "test/runtime/collectives/shm/shm_ranks.h"

namespace hvd::collectives {
namespace {

#ifdef HVD_SANITIZED
constexpr std::int64_t kLayers[] = {1, 0, 70001};
#else
// One that no slice but the first has, an empty one, and one with many rounds.
constexpr std::int64_t kLayers[] = {1, 0, 1000, 300007};
#endif

template <typename T>
std::vector<T> gradient_of(int rank, std::size_t layer) {
  std::vector<T> values(static_cast<std::size_t>(kLayers[layer]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>((i * 7 + static_cast<std::size_t>(rank) * 5 + layer) % 49) / 8 - 2;
  }
  return values;
}

template <typename T>
using Layers = std::vector<std::vector<T>>;

enum class Way : std::uint8_t {
  kPacked,  // in one piece of memory
  kList,    // as a list, with other memory for the results
  kAlone,   // one call for each layer
};

CollectiveCall call_of(DataType dtype) {
  CollectiveCall call{.op = OpType::kAdasum, .dtype = dtype, .reduce_op = ReduceOp::kAdasum};
  call.scaling = {.before = 0.5, .after = 2.0};
  return call;
}

// The layers in one piece of memory.
template <typename T>
std::string run_packed(ShmBackend& backend, DataType dtype, Layers<T>& layers) {
  std::vector<T> whole;
  CollectiveCall call = call_of(dtype);
  for (const std::vector<T>& layer : layers) {
    whole.insert(whole.end(), layer.begin(), layer.end());
    call.tensor_counts.push_back(static_cast<std::int64_t>(layer.size()));
  }
  call.output = whole.data();
  call.count = static_cast<std::int64_t>(whole.size());
  const Status status = run_call(backend, call);
  auto from = whole.begin();
  for (std::vector<T>& layer : layers) {
    std::copy_n(from, layer.size(), layer.begin());
    from += static_cast<std::ptrdiff_t>(layer.size());
  }
  return status.is_ok() ? "" : status.to_string();
}

// Returns why it failed.
template <typename T>
std::string run_adasum(ShmBackend& backend, int rank, DataType dtype, Way way, Layers<T>& results) {
  Layers<T> inputs;
  for (std::size_t layer = 0; layer < std::size(kLayers); ++layer) inputs.push_back(gradient_of<T>(rank, layer));
  results = inputs;
  if (way == Way::kPacked) return run_packed(backend, dtype, results);
  if (way == Way::kAlone) {
    for (std::vector<T>& layer : results) {
      Layers<T> one{layer};
      if (std::string problem = run_packed(backend, dtype, one); problem != "") return problem;
      layer = one.front();
    }
    return "";
  }
  CollectiveCall call = call_of(dtype);
  for (std::size_t layer = 0; layer < inputs.size(); ++layer) {
    call.segments.push_back({inputs[layer].data(), results[layer].data(), kLayers[layer]});
  }
  const Status status = run_call(backend, call);
  return status.is_ok() ? "" : status.to_string();
}

// What all ranks have come to, with the same bits.
template <typename T>
Layers<T> all_run(int size, DataType dtype, Way way) {
  std::vector<Layers<T>> results(static_cast<std::size_t>(size));
  std::vector<std::string> problems(results.size());
  ShmRanks(size).run([&](int rank, ShmBackend& backend) {
    const auto r = static_cast<std::size_t>(rank);
    problems[r] = run_adasum(backend, rank, dtype, way, results[r]);
  });
  for (const std::string& problem : problems) CHECK(problem == "");
  for (const Layers<T>& result : results) CHECK((result == results.front()));
  return results.front();
}

template <typename T>
void check_adasum(int size, DataType dtype, double tolerance) {
  const Layers<T> result = all_run<T>(size, dtype, Way::kList);
  for (const Way way : {Way::kPacked, Way::kAlone}) CHECK((all_run<T>(size, dtype, way) == result));
  for (std::size_t layer = 0; layer < std::size(kLayers); ++layer) {
    std::vector<adasum::Vector> leaves;
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<T> own = gradient_of<T>(rank, layer);
      leaves.emplace_back(own.begin(), own.end());
    }
    const adasum::Vector right = adasum::reference(std::move(leaves));
    double worst = 0;
    for (std::size_t i = 0; i < right.size(); ++i) {
      worst = std::max(worst, std::abs(right[i] - static_cast<double>(result[layer][i])));
    }
    INFO(size << " ranks, layer " << layer);
    CHECK(worst <= tolerance);
  }
}

TEST_CASE("Adasum in shared memory follows the published rule, with the same bits everywhere and in every company",
          "[multi][collectives]") {
  const int size = GENERATE(2, 3, 5, 8);
  check_adasum<float>(size, DataType::kFloat32, 1e-5);
  check_adasum<double>(size, DataType::kFloat64, 1e-12);
}

}  // namespace
}  // namespace hvd::collectives
