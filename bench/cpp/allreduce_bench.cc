// allreduce_bench [--np N] [--sizes BYTES,...] [--arms NAME,...] [--seconds S] [--samples N] [--pin] [--netns PID,...]
// Times float32 sum allreduces of several contenders, interleaved call by call in the same processes, so that whatever
// disturbs the machine disturbs all of them. Prints one JSON object a line:
// {"size":..,"arm":..,"p50_us":..,"min_us":..}. A sample is the slowest rank's time from a common barrier to its
// return. Every rank rewrites its buffer before every call, and every element is verified once per size. With --netns
// rank i is in the network of the i-th process.

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/cpp/arms.h"

namespace hvd::bench {
namespace {

struct Options {
  int np = 2;
  std::vector<std::int64_t> sizes = {4, 1024, 16384, 65536, 262144, 1 << 20, 16 << 20, 64 << 20, 256 << 20};
  std::vector<std::string> arms = {"ours", "stock", "bound"};
  double seconds = 2;  // per size, all arms together
  int samples = 30;    // at least, whatever it takes
  bool pin = false;
  std::vector<std::string> netns;  // by rank; empty: all are here
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--pin") {
      options.pin = true;
      continue;
    }
    if (i + 1 >= argc) {
      std::fprintf(stderr, "allreduce_bench: %s needs a value or is unknown\n", flag.c_str());
      std::exit(2);
    }
    const std::string value = argv[++i];
    if (flag == "--np") options.np = std::stoi(value);
    if (flag == "--netns") options.netns = split(value);
    if (flag == "--arms") options.arms = split(value);
    if (flag == "--seconds") options.seconds = std::stod(value);
    if (flag == "--samples") options.samples = std::stoi(value);
    if (flag == "--sizes") {
      options.sizes.clear();
      for (const std::string& size : split(value)) options.sizes.push_back(std::stoll(size));
    }
  }
  return options;
}

// One rank's part of the whole benchmark.
class Runner {
 public:
  Runner(const Options& options, int rank, Shared& shared) : options_(options), rank_(rank), shared_(shared) {
    if (options.pin) pin();
    if (!options.netns.empty()) enter(options.netns.at(static_cast<std::size_t>(rank)));
    for (const std::string& name : options.arms) arms_.push_back(make_arm(name, rank, options.np, shared));
  }

  void run() {
    for (const std::int64_t size : options_.sizes) run_size(size);
    shared_.barrier(options_.np);  // nobody closes connections that another still uses
  }

 private:
  void pin() {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(rank_) % std::thread::hardware_concurrency(), &set);
    sched_setaffinity(0, sizeof(set), &set);
  }

  static void enter(const std::string& pid) {
    const std::string path = "/proc/" + pid + "/ns/net";
    const int network = open(path.c_str(), O_RDONLY | O_CLOEXEC);  // for as long as this process
    if (network >= 0 && setns(network, CLONE_NEWNET) == 0) return;
    std::perror(("allreduce_bench: " + path).c_str());
    std::_Exit(1);
  }

  void run_size(std::int64_t size) {
    const std::int64_t count = std::max<std::int64_t>(1, size / 4);
    std::vector<float> data(static_cast<std::size_t>(count));
    for (const auto& arm : arms_) verify(*arm, data);
    std::vector<std::vector<double>> samples(arms_.size());
    const TimePoint start = SteadyClock::now();
    for (int i = 0;; ++i) {
      for (std::size_t a = 0; a < arms_.size(); ++a) samples[a].push_back(sample(*arms_[a], data));
      // Rank 0's clock decides for all.
      if (rank_ == 0) {
        const double elapsed = std::chrono::duration<double>(SteadyClock::now() - start).count();
        shared_.cell(0) = i + 1 >= options_.samples && elapsed >= options_.seconds ? 1 : 0;
      }
      shared_.barrier(options_.np);
      const bool is_done = shared_.cell(0) == 1;
      shared_.barrier(options_.np);
      if (is_done) break;
    }
    if (rank_ == 0) report(size, samples);
  }

  // Microseconds of the slowest rank.
  double sample(Arm& arm, std::vector<float>& data) {
    std::fill(data.begin(), data.end(), static_cast<float>(rank_ + 1));
    shared_.barrier(options_.np);
    const TimePoint start = SteadyClock::now();
    arm.run(data.data(), static_cast<std::int64_t>(data.size()));
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(SteadyClock::now() - start).count();
    shared_.cell(rank_) = took;
    shared_.barrier(options_.np);
    std::int64_t slowest = 0;
    for (int r = 0; r < options_.np; ++r) slowest = std::max(slowest, shared_.cell(r).load());
    shared_.barrier(options_.np);
    return static_cast<double>(slowest) / 1000;
  }

  void verify(Arm& arm, std::vector<float>& data) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(rank_ + 1) + static_cast<float>(i % 64);
    arm.run(data.data(), static_cast<std::int64_t>(data.size()));
    if (arm.result() == Arm::Result::kNone) return;
    const bool is_sum = arm.result() == Arm::Result::kSum;
    for (std::size_t i = 0; i < data.size(); ++i) {
      const int step = static_cast<int>(i % 64);
      const int expected = is_sum ? options_.np * (options_.np + 1) / 2 + options_.np * step : 1 + step;
      if (data[i] == static_cast<float>(expected)) continue;
      std::fprintf(stderr, "allreduce_bench: element %zu is %g, expected %d\n", i, static_cast<double>(data[i]),
                   expected);
      std::_Exit(1);
    }
  }

  void report(std::int64_t size, std::vector<std::vector<double>>& samples) {
    for (std::size_t a = 0; a < arms_.size(); ++a) {
      std::sort(samples[a].begin(), samples[a].end());
      const double p50 = samples[a][samples[a].size() / 2];
      const double moved = 2.0 * (options_.np - 1) / options_.np * static_cast<double>(size);
      std::printf(
          "{\"size\": %lld, \"arm\": \"%s\", \"np\": %d, \"samples\": %zu, \"p50_us\": %.2f, \"min_us\": %.2f, "
          "\"busbw_gbs\": %.4f}\n",
          static_cast<long long>(size), options_.arms[a].c_str(), options_.np, samples[a].size(), p50,
          samples[a].front(), moved / p50 / 1000);
    }
    std::fflush(stdout);
  }

  const Options& options_;
  int rank_;
  Shared& shared_;
  std::vector<std::unique_ptr<Arm>> arms_;
};

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  const hvd::bench::Options options = hvd::bench::parse(argc, argv);
  return hvd::bench::run_processes(options.np, [&](int rank, hvd::bench::Shared& shared) {
    hvd::bench::Runner(options, rank, shared).run();
    return 0;
  });
}
