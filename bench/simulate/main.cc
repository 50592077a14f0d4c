// The control plane of a job of any size, simulated: simulate [ranks [ranks on a host [tensors]]]. Then what it means
// for training a ResNet-50 on 512 and 27,360 GPUs, by the arithmetic of gradient_steps.h.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "bench/simulate/gradient_steps.h"
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
