// allreduce_bench [--np N] [--sizes BYTES,...] [--arms NAME,...] [--seconds S] [--samples N] [--netns PID,...]
//                 [--meet FILE]
// Times float32 sum allreduces of several contenders, interleaved call by call in the same processes, so that whatever
// disturbs the machine disturbs all of them. Prints one JSON object a line:
// {"size":..,"arm":..,"p50_us":..,"min_us":..,"whole_us":..}. A sample is the slowest rank's time from a common barrier
// to its return. Every rank rewrites its buffer before every call and reads it afterwards; `whole` includes both, so
// that it shows what a call leaves in which core's cache (beside the arm "nothing"). Every element is verified once per
// size. With --netns rank i is in the network of the i-th process. With --meet the processes are those that mpirun has
// started, N of them, and meet in that file, which must not be there before.

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "bench/cpp/arms.h"

namespace hvd::bench {
namespace {

struct Options {
  int np = 2;
  std::vector<std::int64_t> sizes = {4, 1024, 16384, 65536, 262144, 1 << 20, 16 << 20, 64 << 20, 256 << 20};
  std::vector<std::string> arms = {"ours", "stock", "bound"};
  double seconds = 2;              // per size, all arms together
  int samples = 30;                // at least, whatever it takes
  std::vector<std::string> netns;  // by rank; empty: all are here
  std::string meet;                // empty: ranks are forked
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
    if (i + 1 >= argc) {
      std::fprintf(stderr, "allreduce_bench: %s needs a value or is unknown\n", flag.c_str());
      std::exit(2);
    }
    const std::string value = argv[++i];
    if (flag == "--np") options.np = std::stoi(value);
    if (flag == "--netns") options.netns = split(value);
    if (flag == "--meet") options.meet = value;
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
    if (!options.netns.empty()) enter(options.netns.at(static_cast<std::size_t>(rank)));
    for (const std::string& name : options.arms) arms_.push_back(make_arm(name, rank, options.np, shared));
  }

  void run() {
    for (const std::int64_t size : options_.sizes) run_size(size);
    shared_.barrier(options_.np);  // nobody closes connections that another still uses
  }

 private:
  static void enter(const std::string& pid) {
    const std::string path = "/proc/" + pid + "/ns/net";
    const int network = open(path.c_str(), O_RDONLY | O_CLOEXEC);  // for as long as this process
    if (network >= 0 && setns(network, CLONE_NEWNET) == 0) return;
    std::perror(("allreduce_bench: " + path).c_str());
    std::_Exit(1);
  }

  using Tensor = std::span<float>;
  struct Samples {
    std::vector<double> call;
    std::vector<double> whole;
  };

  void run_size(std::int64_t size) {
    const std::int64_t count = std::max<std::int64_t>(1, size / 4);
    std::vector<float> anywhere(static_cast<std::size_t>(count));
    std::vector<Tensor> tensors;
    for (const auto& arm : arms_) {
      float* const memory = arm->memory(count);
      tensors.emplace_back(memory == nullptr ? anywhere.data() : memory, anywhere.size());
    }
    for (std::size_t a = 0; a < arms_.size(); ++a) verify(*arms_[a], tensors[a]);
    std::vector<Samples> samples(arms_.size());
    const TimePoint start = SteadyClock::now();
    for (int i = 0;; ++i) {
      for (std::size_t a = 0; a < arms_.size(); ++a) sample(*arms_[a], tensors[a], samples[a]);
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

  void sample(Arm& arm, Tensor data, Samples& samples) {
    shared_.barrier(options_.np);
    const TimePoint begin = SteadyClock::now();
    std::fill(data.begin(), data.end(), static_cast<float>(rank_ + 1));
    shared_.barrier(options_.np);
    const TimePoint start = SteadyClock::now();
    arm.run(data.data(), static_cast<std::int64_t>(data.size()));
    const TimePoint end = SteadyClock::now();
    read_ = read_ + sum_of(data);
    const TimePoint last = SteadyClock::now();
    samples.call.push_back(slowest_us(end - start));
    samples.whole.push_back(slowest_us(last - begin));
  }

  // In sixteen chains, so that it takes no longer than the memory does.
  static float sum_of(Tensor data) {
    float sums[16] = {};
    std::size_t i = 0;
    for (; i + 16 <= data.size(); i += 16) {
      for (std::size_t j = 0; j < 16; ++j) sums[j] += data[i + j];
    }
    for (; i < data.size(); ++i) sums[0] += data[i];
    return std::accumulate(std::begin(sums), std::end(sums), 0.0F);
  }

  // Over all ranks.
  double slowest_us(SteadyClock::duration took) {
    shared_.cell(rank_) = std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
    shared_.barrier(options_.np);
    std::int64_t slowest = 0;
    for (int r = 0; r < options_.np; ++r) slowest = std::max(slowest, shared_.cell(r).load());
    shared_.barrier(options_.np);
    return static_cast<double>(slowest) / 1000;
  }

  void verify(Arm& arm, Tensor data) {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(rank_ + 1) + static_cast<float>(i % 64);
    shared_.barrier(options_.np);
    arm.run(data.data(), static_cast<std::int64_t>(data.size()));
    shared_.barrier(options_.np);
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

  void report(std::int64_t size, std::vector<Samples>& samples) {
    for (std::size_t a = 0; a < arms_.size(); ++a) {
      std::ranges::sort(samples[a].call);
      std::ranges::sort(samples[a].whole);
      const double p50 = samples[a].call[samples[a].call.size() / 2];
      const double moved = 2.0 * (options_.np - 1) / options_.np * static_cast<double>(size);
      std::printf(
          "{\"size\": %lld, \"arm\": \"%s\", \"np\": %d, \"samples\": %zu, \"p50_us\": %.2f, \"min_us\": %.2f, "
          "\"busbw_gbs\": %.4f, \"whole_us\": %.2f}\n",
          static_cast<long long>(size), options_.arms[a].c_str(), options_.np, samples[a].call.size(), p50,
          samples[a].call.front(), moved / p50 / 1000, samples[a].whole[samples[a].whole.size() / 2]);
    }
    std::fflush(stdout);
  }

  const Options& options_;
  int rank_;
  Shared& shared_;
  std::vector<std::unique_ptr<Arm>> arms_;
  volatile float read_ = 0;
};

}  // namespace
}  // namespace hvd::bench

int main(int argc, char** argv) {
  const hvd::bench::Options options = hvd::bench::parse(argc, argv);
  const auto body = [&](int rank, hvd::bench::Shared& shared) {
    hvd::bench::Runner(options, rank, shared).run();
    return 0;
  };
  return options.meet.empty() ? hvd::bench::run_processes(options.np, body) : hvd::bench::run_rank(options.meet, body);
}
