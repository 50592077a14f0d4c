// Sends and receives of unbound buffers: the same cases on our transport and on Gloo's own.
#include <gloo/transport/unbound_buffer.h>

#include <bit>
#include <numeric>
#include <random>

#include "runtime/transport/data/gloo_context.h"
#include "test/runtime/transport/gloo_group.h"

using namespace hvd;
using test::each_stack;
using test::GlooRanks;
using test::require;

namespace {

using ContextPtr = std::shared_ptr<gloo::Context>;

std::vector<std::uint8_t> pattern(std::size_t size, unsigned seed) {
  std::vector<std::uint8_t> bytes(size);
  std::uint32_t state = seed * 2654435761U + 1;
  for (auto& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::uint8_t>(state >> 24U);
  }
  return bytes;
}

}  // namespace

TEST_CASE("Messages of every size arrive whole, both ways at once", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    GlooRanks ranks(stack, 2);
    for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{4097}, (std::size_t{256} << 10U) - 1,
                                   std::size_t{256} << 10U, (std::size_t{256} << 10U) + 1, std::size_t{5} << 20U}) {
      ranks.run([&](int rank, const ContextPtr& context) {
        auto out = pattern(size, static_cast<unsigned>(rank));
        std::vector<std::uint8_t> in(size);
        auto send = context->createUnboundBuffer(out.data(), size);
        auto recv = context->createUnboundBuffer(in.data(), size);
        recv->recv(1 - rank, 5);
        send->send(1 - rank, 5);
        int from = -1;
        int to = -1;
        recv->waitRecv(&from);
        send->waitSend(&to);
        require(from == 1 - rank && to == 1 - rank, "wrong rank reported");
        require(in == pattern(size, static_cast<unsigned>(1 - rank)), "wrong bytes");
      });
    }
  });
}

TEST_CASE("A message of no bytes is still a message", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    GlooRanks ranks(stack, 2);
    ranks.run([&](int rank, const ContextPtr& context) {
      auto buffer = context->createUnboundBuffer(nullptr, 0);
      if (rank == 0) {
        buffer->send(1, 1);
        buffer->waitSend();
      } else {
        buffer->recv(0, 1);
        buffer->waitRecv();
      }
    });
  });
}

TEST_CASE("Receives posted long before or after the send match it", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    GlooRanks ranks(stack, 2);
    for (const std::size_t size : {std::size_t{4}, std::size_t{100000}}) {
      for (const int late : {0, 1}) {
        ranks.run([&](int rank, const ContextPtr& context) {
          auto bytes = pattern(size, 3);
          if (rank == 1) std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
          auto buffer = context->createUnboundBuffer(bytes.data(), size);
          if (rank == late) std::this_thread::sleep_for(Millis(20));  // so that the other side waits
          if (rank == 0) {
            buffer->send(1, 9);
            buffer->waitSend();
          } else {
            buffer->recv(0, 9);
            buffer->waitRecv();
            require(bytes == pattern(size, 3), "wrong bytes");
          }
        });
      }
    }
  });
}

TEST_CASE("Many slots interleave and may be posted in any order", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    constexpr std::size_t kSlots = 200;
    GlooRanks ranks(stack, 2);
    const auto size_of = [](std::size_t slot) { return slot % 5 == 0 ? 300000 + slot : slot + 1; };
    ranks.run([&](int rank, const ContextPtr& context) {
      std::vector<std::vector<std::uint8_t>> out(kSlots);
      std::vector<std::vector<std::uint8_t>> in(kSlots);
      std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> sends;
      std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> recvs;
      std::vector<std::size_t> order(kSlots);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank) + 11));
      for (const std::size_t slot : order) {
        out[slot] = pattern(size_of(slot), static_cast<unsigned>(slot * 2) + static_cast<unsigned>(rank));
        sends.push_back(context->createUnboundBuffer(out[slot].data(), out[slot].size()));
        sends.back()->send(1 - rank, slot);
      }
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(rank) + 77));
      for (const std::size_t slot : order) {
        in[slot].resize(size_of(slot));
        recvs.push_back(context->createUnboundBuffer(in[slot].data(), in[slot].size()));
        recvs.back()->recv(1 - rank, slot);
      }
      for (auto& recv : recvs) recv->waitRecv();
      for (auto& send : sends) send->waitSend();
      for (std::size_t slot = 0; slot < kSlots; ++slot) {
        require(in[slot] == pattern(size_of(slot), static_cast<unsigned>(slot * 2) + static_cast<unsigned>(1 - rank)),
                "wrong bytes");
      }
    });
  });
}

TEST_CASE("Messages of one slot keep their order, small and large mixed", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    constexpr std::size_t kCount = 60;
    GlooRanks ranks(stack, 2);
    const auto size_of = [](std::size_t i) { return i % 3 == 0 ? std::size_t{20000} : i + 1; };
    ranks.run([&](int rank, const ContextPtr& context) {
      std::vector<std::vector<std::uint8_t>> memory;
      std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers;
      for (std::size_t i = 0; i < kCount; ++i) {
        memory.push_back(rank == 0 ? pattern(size_of(i), static_cast<unsigned>(i))
                                   : std::vector<std::uint8_t>(size_of(i)));
        buffers.push_back(context->createUnboundBuffer(memory[i].data(), memory[i].size()));
        rank == 0 ? buffers.back()->send(1, 4) : buffers.back()->recv(0, 4);
      }
      for (std::size_t i = 0; i < kCount; ++i) {
        rank == 0 ? buffers[i]->waitSend() : buffers[i]->waitRecv();
        require(memory[i] == pattern(size_of(i), static_cast<unsigned>(i)), "wrong bytes");
      }
    });
  });
}

TEST_CASE("A receive from any of several ranks takes each message once", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    for (const std::size_t size : {std::size_t{8}, std::size_t{50000}}) {
      GlooRanks ranks(stack, 4);
      ranks.run([&](int rank, const ContextPtr& context) {
        auto bytes = pattern(size, static_cast<unsigned>(rank));
        auto buffer = context->createUnboundBuffer(bytes.data(), size);
        if (rank != 0) {
          buffer->send(0, 7);
          buffer->waitSend();
          return;
        }
        std::vector<int> seen;
        for (int i = 0; i < 3; ++i) {
          buffer->recv({1, 2, 3}, 7);
          int from = -1;
          buffer->waitRecv(&from);
          require(bytes == pattern(size, static_cast<unsigned>(from)), "bytes of another rank");
          seen.push_back(from);
        }
        std::sort(seen.begin(), seen.end());
        require(seen == std::vector<int>{1, 2, 3}, "a rank was seen twice");
      });
    }
  });
}

TEST_CASE("More small messages than the eager budget holds wait for their receives", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    constexpr std::size_t kCount = 400;  // of 4000 bytes: six times the budget
    GlooRanks ranks(stack, 2);
    ranks.run([&](int rank, const ContextPtr& context) {
      std::vector<std::vector<std::uint8_t>> memory;
      std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> buffers;
      for (std::size_t i = 0; i < kCount; ++i) {
        memory.push_back(rank == 0 ? pattern(4000, static_cast<unsigned>(i)) : std::vector<std::uint8_t>(4000));
        buffers.push_back(context->createUnboundBuffer(memory[i].data(), memory[i].size()));
      }
      if (rank == 1) std::this_thread::sleep_for(Millis(30));  // so that the budget runs out
      for (std::size_t i = 0; i < kCount; ++i) rank == 0 ? buffers[i]->send(1, i) : buffers[i]->recv(0, i);
      for (std::size_t i = 0; i < kCount; ++i) {
        rank == 0 ? buffers[i]->waitSend() : buffers[i]->waitRecv();
        require(memory[i] == pattern(4000, static_cast<unsigned>(i)), "wrong bytes");
      }
    });
  });
}

TEST_CASE("One buffer may have several operations pending", "[conformance][transport]") {
  each_stack([](const std::string& stack) {
    GlooRanks ranks(stack, 3);
    ranks.run([&](int rank, const ContextPtr& context) {
      std::vector<std::uint8_t> memory(300000, static_cast<std::uint8_t>(rank));
      auto buffer = context->createUnboundBuffer(memory.data(), memory.size());
      if (rank == 0) {
        buffer->recv(1, 1, 0, 100000);
        buffer->recv(2, 1, 100000, 100000);
        buffer->recv(1, 2, 200000, 100000);
        for (int i = 0; i < 3; ++i) buffer->waitRecv();
        require(memory[5] == 1 && memory[150000] == 2 && memory[250000] == 1, "wrong bytes");
      } else {
        buffer->send(0, 1, 0, 100000);
        if (rank == 1) buffer->send(0, 2, 100000, 100000);
        for (int i = 0; i < (rank == 1 ? 2 : 1); ++i) buffer->waitSend();
      }
    });
  });
}

TEST_CASE("Who exchanges messages with everybody asks the store seldom", "[transport]") {
  constexpr int kSize = 24;
  test::FabricGroup group(kSize);
  std::vector<int> all(kSize);
  std::iota(all.begin(), all.end(), 0);
  const int before = group.rows.requests();
  std::vector<std::function<void()>> bodies;
  int expected = 0;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank > 0)
      expected += 1 + static_cast<int>(std::bit_width(static_cast<unsigned>(rank - 1)));  // of 1, 1, 2, ... rows
    bodies.emplace_back([&, rank] {
      const auto context = group.fabrics[static_cast<std::size_t>(rank)]->make_context(1, all).value();
      std::vector<int> in(kSize);
      int out = rank;
      const auto receives = context->createUnboundBuffer(in.data(), in.size() * sizeof(int));
      const auto sends = context->createUnboundBuffer(&out, sizeof(out));
      const auto place = [](int peer) { return static_cast<std::size_t>(peer) * sizeof(int); };
      for (int step = 1; step < kSize; ++step) {
        const int from = (rank + kSize - step) % kSize;
        receives->recv(from, 1, place(from), sizeof(int));
      }
      for (int peer : all) {
        if (peer != rank) sends->send(peer, 1);
      }
      for (int i = 1; i < kSize; ++i) receives->waitRecv();
      for (int i = 1; i < kSize; ++i) sends->waitSend();
      in[static_cast<std::size_t>(rank)] = rank;
      require(in == all, "wrong messages");
    });
  }
  for (const std::string& error : test::run_all(bodies)) CHECK(error == "");
  CHECK(group.rows.requests() - before == expected);
}
