#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace hvd::simulate {

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

// Bytes of the gradients of a ResNet-50, float32, in the order in which backward makes them: 161 of 102 MB.
std::vector<std::uint64_t> resnet50_gradients();

// compute over the step's whole time. Backward is two thirds of `compute` and makes its gradients at even intervals.
// What is ready and decided when the wire gets free goes as one batch.
double scaling_efficiency(const Step& step, const std::vector<std::uint64_t>& gradients);

}  // namespace hvd::simulate
