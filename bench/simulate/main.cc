// The control plane of a job of any size, simulated: simulate [ranks [ranks on a host [tensors]]]. Then what it means
// for training a ResNet-50 on 512 and 27,360 GPUs, by the arithmetic of a Step.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/simulate/rounds.h"

namespace {

using namespace hvd::simulate;

double micros(Nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); }

void print(const RoundCost& cost) {
  std::printf("%-28s %9llu %12llu %12.1f %12.1f %12.1f\n", cost.name.c_str(),
              static_cast<unsigned long long>(cost.most_messages), static_cast<unsigned long long>(cost.most_bytes),
              micros(cost.most_work), micros(cost.root_work), micros(cost.critical_path));
  std::fflush(stdout);
}

hvd::negotiation::CoordinatorOptions job_of(int ranks) {
  hvd::negotiation::CoordinatorOptions options;
  options.tree = hvd::topology::TreePlan(ranks);
  return options;
}

void rounds(int ranks, int ranks_per_host, int tensors) {
  Network network;
  network.ranks_per_host = ranks_per_host;
  std::printf("%d ranks, %d on a host, %d tensors; of the rank with most:\n%-28s %9s %12s %12s %12s %12s\n", ranks,
              ranks_per_host, tensors, "round", "messages", "bytes", "work us", "root us", "path us");
  Rounds job(job_of(ranks), network, tensors);
  print(job.start());
  print(job.first());
  print(job.cached());
  print(job.cached());
  print(job.shuffled(1));
  print(job.straggler(std::chrono::milliseconds(10)));
  print(job.renamed());
  print(job.one());
  print(job.one());
  print(job.joined());
  print(job.join());
}

using Seconds = std::chrono::duration<double>;

// A training step on many hosts as arithmetic; nothing of it is measured but what a decision takes, which the caller
// gives.
struct Step {
  Seconds compute{0.1};  // of one device, forward and backward
  int hosts = 1;
  int ranks_per_host = 1;
  double bytes_per_second = 1e9;  // of a host's network, each way
  double local_bytes_per_second = 1e9;
  Seconds hop{50e-6};   // what a message between hosts takes beside its bytes
  Seconds decision{0};  // from "ready on the last rank" to "runs on every rank"
  // Slices of up to so many bytes for each host go by halving and doubling, of an eighth as many if hosts are no power
  // of two; larger ones around a ring. As HalvingAllreduce decides; 0: all around a ring.
  double halved_bytes_per_host = 64 << 10;
};

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

// Bytes of the gradients of a ResNet-50, float32, in the order in which backward makes them: 161 of 102 MB.
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

// compute over the step's whole time. Backward is two thirds of `compute` and makes its gradients at even intervals.
// What is ready and decided when the wire gets free goes as one batch.
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

// What a decision takes is that of one cached tensor, at best: now and then this machine holds one of the ranks up.
void steps(int hosts, int ranks_per_host, double compute_ms, double gbit) {
  Network network;
  network.ranks_per_host = ranks_per_host;
  Rounds job(job_of(hosts * ranks_per_host), network, 1);
  job.start();
  job.first();
  Step step;
  step.compute = Seconds(compute_ms / 1e3);
  step.hosts = hosts;
  step.ranks_per_host = ranks_per_host;
  step.bytes_per_second = 0.957 * gbit / 8 * 1e9;
  step.local_bytes_per_second = 10e9;
  step.hop = network.latency + 2 * network.per_message;
  Nanoseconds decision = job.cached().critical_path;
  for (int i = 0; i < 4; ++i) decision = std::min(decision, job.cached().critical_path);
  step.decision = decision;
  const auto gradients = resnet50_gradients();
  const double built = scaling_efficiency(step, gradients);
  step.halved_bytes_per_host = 0;
  std::printf(
      "%6d GPUs, %d on a host, %3.0f Gbit/s, step of %3.0f ms, decision %4.0f us: %5.1f %%, rings alone %5.1f %%\n",
      hosts * ranks_per_host, ranks_per_host, gbit, compute_ms, step.decision.count() * 1e6, 100 * built,
      100 * scaling_efficiency(step, gradients));
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 27360;
  const int ranks_per_host = argc > 2 ? std::atoi(argv[2]) : 6;
  const int tensors = argc > 3 ? std::atoi(argv[3]) : 161;
  if (ranks < 2 || ranks_per_host < 1 || tensors < 1) {
    std::fprintf(stderr, "simulate: expected at least 2 ranks, 1 on a host and 1 tensor\n");
    return 2;
  }
  rounds(ranks, ranks_per_host, tensors);
  steps(128, 4, 278, 25);
  steps(4560, 6, 173, 200);
  return 0;
}
