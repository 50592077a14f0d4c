// Messages that are cancelled, of peers that are lost, or of the wrong size.
#include "test/runtime/transport/data/two_contexts.h"

using namespace hvd;
using namespace hvd::transport;
using test::Two;

TEST_CASE("Data without credit is an error of the peer", "[unit][transport]") {
  Two two;
  const FrameHeader header{.type = FrameType::kData, .length = 10, .context = 1, .slot = 3, .total = 10};
  CHECK(two.context[1].on_data_begin(0, header).status().code() == StatusCode::kPrecondition);
  Bytes in(100000);
  two.recv(1, 3, in);
  FrameHeader piece{.type = FrameType::kData, .length = 60000, .context = 1, .slot = 1, .total = 100000};
  CHECK(two.context[1].on_data_begin(0, piece).value() != nullptr);
  CHECK_FALSE(two.context[1].on_data_begin(0, piece).is_ok());  // more than the whole
  piece.slot = 2;
  CHECK_FALSE(two.context[1].on_data_begin(0, piece).is_ok());
  CHECK_FALSE(two.context[1].on_begin(0, piece).is_ok());
}

TEST_CASE("A cancelled receive with credit swallows its message", "[unit][transport]") {
  Two two;
  Completions later;
  const Bytes out(100000, 9);
  Bytes in(100000, 1);
  two.recv(1, 5, in);
  two.deliver(1);
  two.context[1].cancel(two.received, [](int, std::uint64_t) {});
  two.send(0, 5, out);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(in == Bytes(100000, 1));
  CHECK(two.sent.send_ready());
  Bytes next(4);
  const Bytes small(4, 7);
  two.recv(1, 5, next, later);
  two.send(0, 5, small);
  two.deliver(0);
  CHECK(next == small);
}

TEST_CASE("A cancelled send breaks the context on both ends", "[unit][transport]") {
  Two two;
  const Bytes out(100000, 9);
  Bytes in(100000);
  two.recv(1, 5, in);
  two.send(0, 5, out);
  CHECK(two.deliver(0) == FrameType::kRequest);
  two.context[0].cancel(two.sent, [](int, std::uint64_t) {});
  CHECK(two.deliver(0) == FrameType::kFail);
  REQUIRE(two.received.recv_ready());
  CHECK(two.received.take_recv().status().message().find("gave up a send") != std::string::npos);
  CHECK_FALSE(two.context[0].send({.to = 1, .slot = 1, .completions = &two.sent}).is_ok());
}

TEST_CASE("A lost peer fails what needs it and refuses what comes later", "[unit][transport]") {
  Two two;
  Bytes in(4);
  two.recv(1, 5, in);
  const Status why = Status::peer_lost("lost rank 0");
  two.from[1].end = why;
  two.context[1].fail_peer(0, why);
  CHECK(two.received.take_recv().status().code() == StatusCode::kPeerLost);
  Completions later;
  later.begin();
  RecvOp op;
  op.sources = {0};
  op.completions = &later;
  CHECK(two.context[1].recv(op).code() == StatusCode::kPeerLost);
}

TEST_CASE("A message that came before its sender was lost can still be received", "[unit][transport]") {
  Two two;
  const Bytes out(4, 9);
  Bytes in(4);
  two.send(0, 5, out);
  two.deliver(0);
  two.from[1].end = Status::peer_lost("lost rank 0");
  two.context[1].fail_peer(0, two.from[1].end);
  two.recv(1, 5, in);
  CHECK(two.received.take_recv().value() == 0);
  CHECK(in == out);
}

TEST_CASE("Different sizes of a send and its receive fail the context on both ends", "[unit][transport]") {
  Two two;
  const std::size_t send_size = GENERATE(4U, 100000U);
  const bool receive_first = GENERATE(true, false);
  const Bytes out(send_size, 9);
  Bytes in(200000);
  if (receive_first) two.recv(1, 5, in);
  two.send(0, 5, out);
  if (!receive_first) two.recv(1, 5, in);
  for (int turn = 0; turn < 8; ++turn) {
    for (int rank : {0, 1}) {
      if (!two.from[rank].frames.empty()) two.deliver(rank);
    }
  }
  REQUIRE(two.received.recv_ready());
  const std::string why = two.received.take_recv().status().message();
  CHECK(why.find("disagree on the size of a message: " + std::to_string(send_size) + " bytes sent, 200000 bytes") !=
        std::string::npos);
  CHECK_FALSE(two.context[0].send({.to = 1, .slot = 6, .completions = &two.sent}).is_ok());
  CHECK_FALSE(two.context[1].send({.to = 0, .slot = 6, .completions = &two.sent}).is_ok());
}
