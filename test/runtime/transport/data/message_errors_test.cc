// Sends and receives that do not fit together, or come too early.
#include <gloo/transport/unbound_buffer.h>

#include "runtime/transport/data/gloo_context.h"
#include "test/runtime/transport/gloo_group.h"

using namespace hvd;
using test::GlooRanks;
using test::require;

namespace {

using ContextPtr = std::shared_ptr<gloo::Context>;

}  // namespace

TEST_CASE("A message faster than the other side's context waits for it", "[multi][transport]") {
  test::FabricGroup group(2);
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < 2; ++rank) {
    bodies.emplace_back([&group, rank] {
      if (rank == 1) std::this_thread::sleep_for(Millis(50));  // rank 0's messages come first
      auto context = group.fabrics[static_cast<std::size_t>(rank)]->make_context(9, {0, 1}).value();
      std::vector<std::uint8_t> large(100000);
      std::uint32_t small = 77;
      auto a = context->createUnboundBuffer(&small, sizeof(small));
      auto b = context->createUnboundBuffer(large.data(), large.size());
      if (rank == 0) {
        a->send(1, 1);
        b->send(1, 2);
        a->waitSend();
        b->waitSend();
      } else {
        small = 0;
        a->recv(0, 1);
        b->recv(0, 2);
        a->waitRecv();
        b->waitRecv();
        require(small == 77, "wrong value");
      }
    });
  }
  for (const std::string& error : test::run_all(bodies)) CHECK(error == "");
}

TEST_CASE("A size that differs between send and receive is an error on both sides", "[multi][transport]") {
  for (const auto& [sent, expected] : std::vector<std::pair<std::size_t, std::size_t>>{
           {4, 8}, {8, 4}, {4, 100000}, {100000, 4}, {100000, 200000}, {200000, 100000}}) {
    for (const int late : {0, 1}) {
      INFO(sent << " sent, " << expected << " expected, rank " << late << " late");
      GlooRanks ranks("hvd", 2);
      std::vector<std::string> errors(2);
      ranks.run([&, sent_size = sent, recv_size = expected](int rank, const ContextPtr& context) {
        if (rank == late) std::this_thread::sleep_for(Millis(10));
        std::vector<std::uint8_t> memory(rank == 0 ? sent_size : recv_size);
        auto buffer = context->createUnboundBuffer(memory.data(), memory.size());
        try {
          if (rank == 0) {
            buffer->send(1, 1);
            buffer->waitSend();
            // A small message has left by now; the next operation hears of it.
            buffer->recv(1, 2);
            buffer->waitRecv();
          } else {
            buffer->recv(0, 1);
            buffer->waitRecv();
          }
        } catch (const transport::WaitError& e) {
          require(e.status().code() == StatusCode::kPrecondition, "another code");
          errors[static_cast<std::size_t>(rank)] = e.what();
        }
      });
      for (const std::string& error : errors) {
        CHECK(error.find("disagree on the size") != std::string::npos);
        CHECK(error.find(std::to_string(sent) + " bytes sent") != std::string::npos);
        CHECK(error.find(std::to_string(expected) + " bytes expected") != std::string::npos);
      }
      // Other contexts on the same connection go on.
      std::vector<std::function<void()>> bodies;
      for (int rank = 0; rank < 2; ++rank) {
        bodies.emplace_back([&ranks, rank] {
          auto context = ranks.group().fabrics[static_cast<std::size_t>(rank)]->make_context(2, {0, 1}).value();
          std::uint32_t value = rank == 0 ? 5 : 0;
          auto buffer = context->createUnboundBuffer(&value, sizeof(value));
          rank == 0 ? buffer->send(1, 1) : buffer->recv(0, 1);
          rank == 0 ? buffer->waitSend() : buffer->waitRecv();
          require(value == 5, "wrong value");
        });
      }
      for (const std::string& error : test::run_all(bodies)) CHECK(error == "");
    }
  }
}

TEST_CASE("What the transport does not have is refused in words", "[multi][transport]") {
  GlooRanks ranks("hvd", 2);
  auto context = ranks.context(0);
  std::uint32_t value = 0;
  CHECK_THROWS_WITH(context->getPair(1)->createSendBuffer(0, &value, 4), Catch::Contains("bound buffers"));
  auto buffer = context->createUnboundBuffer(&value, 4);
  CHECK_THROWS_WITH(buffer->send(0, 1), Catch::Contains("itself"));
  CHECK_THROWS_WITH(buffer->send(2, 1), Catch::Contains("no member 2"));
  CHECK_THROWS_WITH(buffer->send(1, 1, 2, 4), Catch::Contains("are not in a buffer of 4"));
  CHECK(ranks.group().fabrics[0]->make_context(1, {0, 1}).status().message() ==
        "context 1 exists or existed in this epoch");
  CHECK_FALSE(ranks.group().fabrics[0]->make_context(5, {1}).is_ok());
  CHECK_FALSE(ranks.group().fabrics[0]->make_context(5, {0, 0}).is_ok());
  CHECK_FALSE(ranks.group().fabrics[0]->make_context(5, {0, 2}).is_ok());
}
