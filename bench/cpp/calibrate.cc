// calibrate [--mib N]: what this machine can do at all, one JSON object. Two processes at a time.
//   scale_gbs, copy_gbs   memory: a[i] *= c in place and memcpy, sum over the processes, payload bytes
//   flag_us, tcp_us       one way of a small message: shared-memory flag (polled), loopback TCP, exchanged at once
//   tcp_gbs               loopback TCP, both directions at once, bytes of one direction per second and rank

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "bench/cpp/tcp_ring.h"
#include "runtime/collectives/kernels/kernels.h"

namespace hvd::bench {
namespace {

constexpr int kRanks = 2;
constexpr int kRepeats = 15;

double seconds_of(const std::function<void()>& body) {
  const TimePoint start = SteadyClock::now();
  body();
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Calibration {
 public:
  Calibration(int rank, Shared& shared, std::size_t bytes)
      : rank_(rank), shared_(shared), ring_(rank, kRanks, shared), a_(bytes / 4, 1.0F), b_(bytes / 4, 2.0F) {}

  void run() {
    const double bytes = 4.0 * static_cast<double>(a_.size());
    const auto count = static_cast<std::int64_t>(a_.size());
    const double scale = slowest([&] { kernels::scale_copy(DataType::kFloat32, a_.data(), a_.data(), count, 1.0001); });
    const double copy = slowest([&] { std::memcpy(a_.data(), b_.data(), 4 * a_.size()); });
    auto* const raw = reinterpret_cast<std::uint8_t*>(a_.data());
    const double stream = slowest([&] { ring_.exchange(raw, 4 * a_.size(), 4 * a_.size()); });
    const double small = ping_pong();
    const double flag = flag_ping_pong();
    if (rank_ != 0) return;
    std::printf(
        "{\"mib\": %.0f, \"scale_gbs\": %.2f, \"copy_gbs\": %.2f, \"tcp_gbs\": %.3f, \"tcp_us\": %.2f, "
        "\"flag_us\": %.3f, \"isa\": \"%s\"}\n",
        bytes / 1048576, kRanks * bytes / scale / 1e9, kRanks * bytes / copy / 1e9, bytes / stream / 1e9, small * 1e6,
        flag * 1e6, kernels::isa_name());
  }

 private:
  // Median over repeats of the slowest rank, in seconds.
  double slowest(const std::function<void()>& body) {
    std::vector<double> times;
    for (int i = 0; i < kRepeats; ++i) {
      shared_.barrier(kRanks);
      shared_.cell(rank_) = static_cast<std::int64_t>(seconds_of(body) * 1e9);
      shared_.barrier(kRanks);
      times.push_back(static_cast<double>(std::max(shared_.cell(0).load(), shared_.cell(1).load())) / 1e9);
      shared_.barrier(kRanks);
    }
    return median(times);
  }

  // One way, in seconds: both send and receive 4 bytes at once, which takes as long as one way takes.
  double ping_pong() {
    std::uint8_t block[4] = {};
    return slowest([&] {
             for (int i = 0; i < 100; ++i) ring_.exchange(block, 4, 4);
           }) /
           100;
  }

  double flag_ping_pong() {
    constexpr std::int64_t kTurns = 1000;
    std::atomic<std::int64_t>& flag = shared_.cell(2);
    return slowest([&] {
             // Rank 0 writes the odd numbers, rank 1 the even ones. Long polls yield: there may be one core.
             const std::int64_t base = flag.load() / 2 * 2;
             shared_.barrier(kRanks);
             for (std::int64_t turn = base; turn < base + 2 * kTurns; ++turn) {
               if (turn % 2 == rank_) {
                 flag.store(turn + 1, std::memory_order_release);
               } else {
                 for (int polls = 0; flag.load(std::memory_order_acquire) <= turn; ++polls) {
                   if (polls > 10000) poll(nullptr, 0, 0);
                 }
               }
             }
           }) /
           (2 * kTurns);
  }

  int rank_;
  Shared& shared_;
  TcpRing ring_;
  std::vector<float> a_;
  std::vector<float> b_;
};

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  std::size_t mib = 64;
  if (argc == 3 && std::string(argv[1]) == "--mib") mib = std::stoul(argv[2]);
  return hvd::bench::run_processes(2, [&](int rank, hvd::bench::Shared& shared) {
    hvd::bench::Calibration(rank, shared, mib << 20).run();
    return 0;
  });
}
