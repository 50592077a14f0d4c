#include "bench/simulate/gradient_steps.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hvd::simulate {
namespace {

// What an allreduce of so many bytes takes: inside the hosts to slices, between hosts slice by slice, and back.
Seconds allreduce_time(const Step& step, double bytes) {
  const bool folds = !std::has_single_bit(static_cast<unsigned>(step.hosts));
  const double most_halved = step.halved_bytes_per_host * step.hosts / (folds ? 8 : 1);
  double moved = 2.0 * (step.hosts - 1) / step.hosts * bytes;
  double hops = 2.0 * (step.hosts - 1);
  if (bytes / step.ranks_per_host <= most_halved) {
    hops = 2.0 * std::floor(std::log2(step.hosts)) + (folds ? 2 : 0);
    if (folds) moved += 2.0 * bytes;  // of those that fold, for whom all others wait
  }
  const Seconds between = step.hop * hops + Seconds(moved / step.bytes_per_second);
  return between + Seconds(step.ranks_per_host > 1 ? 2.0 * bytes / step.local_bytes_per_second : 0.0);
}

}  // namespace

std::vector<std::uint64_t> resnet50_gradients() {
  std::vector<std::uint64_t> elements;
  const auto add_convolution = [&](std::uint64_t in, std::uint64_t out, std::uint64_t width) {
    elements.push_back(in * out * width * width);
    for (int i = 0; i < 2; ++i) elements.push_back(out);  // the scale and shift after it
  };
  add_convolution(3, 64, 7);
  std::uint64_t in = 64;
  std::uint64_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      add_convolution(in, width, 1);
      add_convolution(width, width, 3);
      add_convolution(width, 4 * width, 1);
      if (block == 0) add_convolution(in, 4 * width, 1);
      in = 4 * width;
    }
    width *= 2;
  }
  elements.push_back(std::uint64_t{2048} * 1000);
  elements.push_back(1000);
  for (std::uint64_t& count : elements) count *= sizeof(float);
  std::reverse(elements.begin(), elements.end());
  return elements;
}

double scaling_efficiency(const Step& step, const std::vector<std::uint64_t>& gradients) {
  const Seconds forward = step.compute / 3;
  const Seconds gap = (step.compute - forward) / static_cast<double>(gradients.size());
  const auto decided = [&](std::size_t i) { return forward + gap * static_cast<double>(i + 1) + step.decision; };
  Seconds wire_free{0};
  for (std::size_t i = 0; i < gradients.size();) {
    const Seconds begin = std::max(wire_free, decided(i));
    double bytes = 0;
    for (; i < gradients.size() && decided(i) <= begin; ++i) bytes += static_cast<double>(gradients[i]);
    wire_free = begin + allreduce_time(step, bytes);
  }
  return step.compute / std::max(wire_free, step.compute);
}

}  // namespace hvd::simulate
