// Which frames carry a message, and in which order.
#include "test/runtime/transport/data/two_contexts.h"

using namespace hvd;
using namespace hvd::transport;
using test::Two;

TEST_CASE("A small message costs one frame when its receive is posted", "[unit][transport]") {
  Two two;
  const Bytes out(4, 9);
  Bytes in(4);
  two.recv(1, 5, in);
  CHECK(two.from[1].frames.empty());
  two.send(0, 5, out);
  CHECK(two.deliver(0) == FrameType::kEager);
  CHECK(two.received.take_recv().value() == 0);
  CHECK(two.sent.take_send().value() == 1);
  CHECK(in == out);
  CHECK(two.from[0].frames.empty());
  CHECK(two.from[1].frames.empty());
}

TEST_CASE("A large message needs only the credit that its receive gave in advance", "[unit][transport]") {
  Two two;
  const Bytes out(100000, 9);
  Bytes in(100000);
  two.recv(1, 5, in);
  CHECK(two.deliver(1) == FrameType::kCredit);
  two.send(0, 5, out);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(two.received.recv_ready());
  CHECK(in == out);
}

TEST_CASE("Only what moves this context's messages is its progress", "[unit][transport]") {
  Two two;
  const Bytes out(100000, 9);
  Bytes in(100000);
  CHECK(two.context[0].progress() == ContextProgress{});
  two.send(0, 5, out);  // no credit yet
  const ContextProgress asked = two.context[0].progress();
  CHECK(asked.waits_for == std::vector<int>{1});
  two.from[0].written = 1000;  // of other contexts
  two.from[0].read = 1000;
  CHECK(two.context[0].progress() == asked);
  two.recv(1, 5, in);
  const ContextProgress posted = two.context[1].progress();
  CHECK(posted.waits_for == std::vector<int>{0});
  two.from[1].read = 1000;
  CHECK(two.context[1].progress() == posted);
  two.deliver(1);  // the credit: the message is in the connection's hands
  const ContextProgress credited = two.context[0].progress();
  CHECK(credited.moved > asked.moved);
  two.from[0].written = 1001;
  CHECK(two.context[0].progress().moved == credited.moved + 1);
  two.deliver(0);  // the request, which crossed the credit
  two.deliver(0);
  CHECK(two.received.recv_ready());
  CHECK(two.context[0].progress().waits_for.empty());
  CHECK(two.context[1].progress().waits_for.empty());
}

TEST_CASE("Request and credit that cross on the way stand for one message", "[unit][transport]") {
  Two two;
  const Bytes out(100000, 9);
  Bytes in(100000);
  two.send(0, 5, out);
  two.recv(1, 5, in);
  CHECK(two.deliver(1) == FrameType::kCredit);
  CHECK(two.deliver(0) == FrameType::kRequest);
  CHECK(two.from[1].frames.empty());  // no second credit
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(two.received.recv_ready());
}

TEST_CASE("A small message without budget asks first and does not take a large one's credit", "[unit][transport]") {
  Two two;
  const Bytes small(4, 1);
  const Bytes large(100000, 2);
  Bytes small_in(4);
  Bytes large_in(100000);
  two.from[0].budget = 0;
  two.recv(1, 5, small_in);
  two.recv(1, 5, large_in);
  CHECK(two.deliver(1) == FrameType::kCredit);  // of the large one
  two.send(0, 5, small);
  two.send(0, 5, large);
  CHECK(two.deliver(0) == FrameType::kRequest);
  CHECK(two.deliver(1) == FrameType::kCredit);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(small_in == small);
  CHECK(large_in == large);
}

TEST_CASE("Eager messages that come early wait in order and free their budget when taken", "[unit][transport]") {
  Two two;
  const Bytes a(10, 1);
  const Bytes b(10, 2);
  two.send(0, 5, a);
  two.send(0, 5, b);
  two.deliver(0);
  two.deliver(0);
  CHECK(two.from[1].consumed == 0);
  Bytes in(10);
  two.recv(1, 5, in);
  CHECK(in == a);
  CHECK(two.from[1].consumed == 10);
  two.recv(1, 5, in);
  CHECK(in == b);
}

TEST_CASE("Messages of one slot go one after another, those of other slots at once", "[unit][transport]") {
  Two two;
  const Bytes large(100000, 1);
  const Bytes small(4, 2);
  two.send(0, 5, large);
  two.send(0, 5, small);
  two.send(0, 6, small);
  REQUIRE(two.from[0].frames.size() == 2);
  CHECK(two.from[0].frames[0].header.type == FrameType::kRequest);
  CHECK(two.from[0].frames[1].header.slot == 6);
  Bytes in(100000);
  two.recv(1, 5, in);
  two.deliver(0);
  two.deliver(0);
  CHECK(two.deliver(1) == FrameType::kCredit);
  CHECK(two.deliver(0) == FrameType::kData);
  REQUIRE(two.from[0].frames.size() == 1);  // now the small one's turn has come
  CHECK(two.from[0].frames[0].header.slot == 5);
}

TEST_CASE("A receive from either of several ranks gives no credit in advance", "[unit][transport]") {
  Two two;
  Bytes in(100000);
  RecvOp op;
  op.sources = {0, 1};
  op.slot = 5;
  op.data = in.data();
  op.size = in.size();
  op.completions = &two.received;
  two.received.begin();
  REQUIRE(two.context[1].recv(op).is_ok());
  CHECK(two.from[1].frames.empty());
  const Bytes out(100000, 9);
  two.send(0, 5, out);
  CHECK(two.deliver(0) == FrameType::kRequest);
  CHECK(two.deliver(1) == FrameType::kCredit);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(two.received.take_recv().value() == 0);
  CHECK((in == out));
}

TEST_CASE("A message of no bytes is a message", "[unit][transport]") {
  Two two;
  const Bytes out;
  Bytes in;
  two.recv(1, 5, in);
  two.send(0, 5, out);
  CHECK(two.deliver(0) == FrameType::kEager);
  CHECK(two.received.take_recv().value() == 0);
  CHECK(two.sent.take_send().value() == 1);
}

TEST_CASE("A peer that sends what nobody receives is stopped before memory ends", "[unit][transport]") {
  Two two;
  const FrameHeader credit{.type = FrameType::kCredit, .context = 1, .slot = 3, .offset = 1, .total = 100000};
  Status last;
  std::size_t taken = 0;
  for (; last.is_ok() && taken <= MessageContext::kMaxUnmatched; ++taken) last = two.context[1].on_credit(0, credit);
  CHECK(taken == MessageContext::kMaxUnmatched + 1);
  CHECK(last.message() == "rank 0 sent more than 1048576 messages that nobody receives");
}

TEST_CASE("Pieces that overtake what says that their message begins do not end its receive", "[unit][transport]") {
  Two two;
  Completions first;
  Completions second;
  const Bytes out(100000, 9);
  const Bytes small(4, 7);
  Bytes in(100000);
  Bytes next(4);
  two.recv(1, 5, in, first);
  two.recv(1, 5, next, second);
  two.deliver(1);
  two.send(0, 5, out);
  std::swap(two.from[0].frames[0], two.from[0].frames[1]);  // the piece on another connection, before its beginning
  CHECK(two.deliver_one(0) == FrameType::kData);
  CHECK_FALSE(first.recv_ready());
  CHECK(two.deliver_one(0) == FrameType::kBegin);
  CHECK(first.recv_ready());
  CHECK(in == out);
  two.send(0, 5, small);
  two.deliver(0);
  CHECK(second.recv_ready());
  CHECK(next == small);
}

TEST_CASE("Receives of one slot end in the order of posting, in whatever order their messages are complete",
          "[unit][transport]") {
  const bool second_is_small = GENERATE(false, true);
  Two two;
  Completions first;
  Completions second;
  const Bytes out(100000, 9);
  const Bytes later(second_is_small ? 4 : 100000, 7);
  Bytes in(out.size());
  Bytes next(later.size());
  two.recv(1, 5, in, first);
  two.recv(1, 5, next, second);
  while (!two.from[1].frames.empty()) two.deliver(1);
  two.send(0, 5, out);
  two.deliver_one(0);                                              // its beginning
  const test::Frame late = std::move(two.from[0].frames.front());  // its piece, on a slow connection
  two.from[0].frames.pop_front();
  two.context[0].on_sent(1, {1, late.slot, late.op_id});  // the kernel has it
  two.send(0, 5, later);
  while (!two.from[0].frames.empty()) two.deliver(0);
  CHECK(next == later);
  CHECK_FALSE(second.recv_ready());
  two.deliver_data(0, late);
  CHECK(in == out);
  CHECK(first.recv_ready());
  CHECK(second.recv_ready());
}
