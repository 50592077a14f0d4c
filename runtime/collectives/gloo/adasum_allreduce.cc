#include "runtime/collectives/gloo/adasum_allreduce.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/collectives/kernels/adasum.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::collectives {
namespace {

using Range = TreeAllreduce::Range;

class AdasumCombiner final : public TreeAllreduce::Combiner {
 public:
  AdasumCombiner(std::span<const std::int64_t> tensors, DataType dtype) : tensors_(tensors), dtype_(dtype) {}

  void combine(Range range, const std::uint8_t* left, const std::uint8_t* right, std::uint8_t* out,
               const AddUp& add_up) override {
    std::vector<kernels::Dots> sums(tensors_.size());
    for_each_tensor(range, [&](std::size_t i, std::size_t offset, std::int64_t n) {
      kernels::add_dots(dtype_, left + offset, right + offset, n, sums[i]);
    });
    add_up({&sums.data()->dot, kernels::kDotsNumbers * sums.size()});
    for_each_tensor(range, [&](std::size_t i, std::size_t offset, std::int64_t n) {
      kernels::combine(dtype_, out + offset, left + offset, right + offset, n, kernels::coefficients(sums[i]));
    });
  }

 private:
  // Calls f(tensor, offset in bytes, elements) for what `range` has of each tensor.
  template <typename F>
  void for_each_tensor(Range range, F f) const {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const Range part{std::max(begin, range.begin), std::min(begin + tensors_[i], range.end)};
      begin += tensors_[i];
      if (part.count() > 0)
        f(i, static_cast<std::size_t>(part.begin - range.begin) * element_size(dtype_), part.count());
    }
  }

  std::span<const std::int64_t> tensors_;
  DataType dtype_;
};

}  // namespace

void AdasumAllreduce::run(void* data, std::span<const std::int64_t> tensors, DataType dtype, std::uint32_t tag) {
  TreeAllreduce::Call call{static_cast<std::uint8_t*>(data),
                           std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0}), element_size(dtype), tag};
  const auto [size, rank, local, always_whole] = options_;
  const int hosts = size / local;
  const bool is_small = static_cast<std::size_t>(call.count) * call.element <= kWholeBytes;
  if (hosts == 2 || is_small || always_whole) call.exchange = TreeAllreduce::Exchange::kWhole;

  const int leader = rank / local * local;
  if (rank != leader) {
    tree_.send(call, leader);
    return tree_.receive(call, leader, call.data);
  }
  if (local > 1) average_host(call, dtype);
  std::vector<int> leaders;
  for (int r = 0; r < size; r += local) leaders.push_back(r);
  AdasumCombiner combiner(tensors, dtype);
  tree_.run(call, leaders, combiner);
  for (int r = leader + 1; r < leader + local; ++r) tree_.send(call, r);
}

// Scaled before they are added, so that a sum of float16 cannot overflow where the average does not.
void AdasumAllreduce::average_host(const TreeAllreduce::Call& call, DataType dtype) {
  std::uint8_t* const incoming = tree_.scratch(static_cast<std::size_t>(call.count) * call.element);
  const double share = 1.0 / options_.local_size;
  kernels::scale_copy(dtype, call.data, call.data, call.count, share);
  for (int r = options_.rank + 1; r < options_.rank + options_.local_size; ++r) {
    tree_.receive(call, r, incoming);
    kernels::scale_copy(dtype, incoming, incoming, call.count, share);
    kernels::reduce(dtype, ReduceOp::kSum, call.data, call.data, incoming, call.count);
  }
}

}  // namespace hvd::collectives
