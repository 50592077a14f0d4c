// Gloo's own algorithms on our transport, N ranks as N threads.
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>

#include <numeric>

#include "test/runtime/transport/gloo_group.h"

using namespace hvd;
using test::each_stack;
using test::GlooRanks;

namespace {

using SumFn = void (*)(void*, const void*, const void*, std::size_t);
const SumFn kSum = &gloo::sum<float>;

std::vector<float> ramp(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rank + 1) * static_cast<float>(i % 97 + 1);
  return values;
}

void check_sum(const std::vector<float>& got, int ranks) {
  const int sum = ranks * (ranks + 1) / 2;
  const auto factor = static_cast<float>(sum);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float expected = factor * static_cast<float>(i % 97 + 1);
    if (got[i] != expected) {
      throw std::runtime_error("element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", expected " +
                               std::to_string(expected));
    }
  }
}

}  // namespace

TEST_CASE("Gloo's allreduce sums on every rank", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    for (const int size : {2, 3, 4, 8}) {
      GlooRanks ranks(stack, size);
      for (const auto algorithm : {gloo::AllreduceOptions::Algorithm::RING, gloo::AllreduceOptions::Algorithm::BCUBE}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{300000}}) {
          ranks.run([&](int rank, const std::shared_ptr<gloo::Context>& context) {
            std::vector<float> values = ramp(rank, count);
            gloo::AllreduceOptions options(context);
            options.setAlgorithm(algorithm);
            options.setOutput(values.data(), values.size());
            options.setReduceFunction(kSum);
            gloo::allreduce(options);
            check_sum(values, size);
          });
        }
      }
    }
  });
}

TEST_CASE("Gloo's broadcast reaches every rank from every root", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    for (const int size : {2, 3, 8}) {
      GlooRanks ranks(stack, size);
      for (int root = 0; root < size; ++root) {
        ranks.run([&](int rank, const std::shared_ptr<gloo::Context>& context) {
          std::vector<float> values = ramp(rank, 70000);
          gloo::BroadcastOptions options(context);
          options.setOutput(values.data(), values.size());
          options.setRoot(root);
          gloo::broadcast(options);
          if (values != ramp(root, 70000)) throw std::runtime_error("wrong values");
        });
      }
    }
  });
}

TEST_CASE("Gloo's allgatherv joins uneven parts, empty ones too", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    for (const int size : {2, 3, 4}) {
      GlooRanks ranks(stack, size);
      ranks.run([&](int rank, const std::shared_ptr<gloo::Context>& context) {
        std::vector<std::size_t> counts;
        std::vector<float> expected;
        for (int r = 0; r < size; ++r) {
          counts.push_back(static_cast<std::size_t>(r) * 40000);
          const auto part = ramp(r, counts.back());
          expected.insert(expected.end(), part.begin(), part.end());
        }
        std::vector<float> input = ramp(rank, counts[static_cast<std::size_t>(rank)]);
        std::vector<float> output(expected.size());
        gloo::AllgathervOptions options(context);
        options.setInput(input.data(), input.size());
        options.setOutput(output.data(), counts);
        gloo::allgatherv(options);
        if (output != expected) throw std::runtime_error("wrong values");
      });
    }
  });
}

TEST_CASE("Gloo's barrier, gather, scatter, reduce and alltoall work", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    const int size = 4;
    const std::size_t count = 9000;
    GlooRanks ranks(stack, size);
    ranks.run([&](int rank, const std::shared_ptr<gloo::Context>& context) {
      gloo::BarrierOptions barrier(context);
      for (int i = 0; i < 20; ++i) gloo::barrier(barrier);

      std::vector<float> mine = ramp(rank, count);
      std::vector<float> all(count * size);
      gloo::GatherOptions gather(context);
      gather.setInput(mine.data(), count);
      if (rank == 2) gather.setOutput(all.data(), all.size());
      gather.setRoot(2);
      gloo::gather(gather);

      std::vector<float> back(count);
      std::vector<float*> pieces;
      for (std::size_t r = 0; r < size; ++r) pieces.push_back(all.data() + r * count);
      gloo::ScatterOptions scatter(context);
      if (rank == 2) scatter.setInputs(pieces, count);
      scatter.setOutput(back.data(), count);
      scatter.setRoot(2);
      gloo::scatter(scatter);
      if (back != mine) throw std::runtime_error("gather and scatter lost values");

      gloo::ReduceOptions reduce(context);
      reduce.setOutput(mine.data(), count);
      reduce.setReduceFunction(kSum);
      reduce.setRoot(1);
      gloo::reduce(reduce);
      if (rank == 1) check_sum(mine, size);

      std::vector<float> out(count * size);
      std::vector<float> in(count * size, static_cast<float>(rank));
      gloo::AlltoallOptions alltoall(context);
      alltoall.setInput(in.data(), in.size());
      alltoall.setOutput(out.data(), out.size());
      gloo::alltoall(alltoall);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t from = i / count;
        if (out[i] != static_cast<float>(from)) throw std::runtime_error("alltoall mixed values up");
      }
    });
  });
}

TEST_CASE("Many contexts of different members work at once", "[conformance][transport]") {
  test::FabricGroup group(3);
  const std::vector<std::vector<int>> members = {{0, 1, 2}, {0, 1}, {1, 2}, {2, 0}};
  constexpr int kRounds = 30;
  std::vector<std::function<void()>> lanes;
  for (std::size_t c = 0; c < members.size() * 3; ++c) {
    const auto& ranks = members[c % members.size()];
    for (const int rank : ranks) {
      lanes.emplace_back([&group, &ranks, c, rank] {
        auto context = group.fabrics[static_cast<std::size_t>(rank)]->make_context(c, ranks);
        if (!context.is_ok()) throw std::runtime_error(context.status().message());
        for (int i = 0; i < kRounds; ++i) {
          std::vector<float> values(i % 3 == 0 ? 50000 : 100, static_cast<float>(c));
          gloo::AllreduceOptions options(context.value());
          options.setOutput(values.data(), values.size());
          options.setReduceFunction(kSum);
          gloo::allreduce(options);
          if (values.back() != static_cast<float>(c * ranks.size())) throw std::runtime_error("wrong sum");
        }
      });
    }
  }
  const auto errors = test::run_all(lanes);
  for (const std::string& error : errors) CHECK(error.empty());
}
