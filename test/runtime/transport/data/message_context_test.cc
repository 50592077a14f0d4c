// Matching without sockets: two contexts joined by queues of frames that the test moves.
#include "runtime/transport/data/message_context.h"

#include <catch2/catch.hpp>
#include <deque>

using namespace hvd;
using namespace hvd::transport;

namespace {

struct Frame {
  FrameHeader header;
  Bytes payload;
  std::uint64_t op_id = 0;
};

// The sending half of a connection: keeps frames until the test delivers them.
class Wire final : public FrameSender {
 public:
  bool reserve_eager(std::size_t size) override { return size <= budget; }
  void queue_eager(const SendOp& op, std::uint64_t context) override { queue(FrameType::kEager, op, context); }
  void queue_message(const SendOp& op, std::uint64_t context) override { queue(FrameType::kData, op, context); }
  void queue_notice(FrameType type, std::uint64_t context, std::uint64_t slot, std::uint64_t total,
                    std::string_view text) override {
    frames.push_back(
        {{.type = type, .context = context, .slot = slot, .total = total}, Bytes(text.begin(), text.end())});
  }
  void consumed_eager(std::size_t size) override { consumed += size; }
  Status lost() const override { return end; }
  std::uint64_t bytes_written() const override { return written; }
  std::uint64_t bytes_read() const override { return read; }

  std::deque<Frame> frames;
  std::uint64_t written = 0;
  std::uint64_t read = 0;
  std::size_t budget = kMaxEager;
  std::size_t consumed = 0;
  Status end;

 private:
  void queue(FrameType type, const SendOp& op, std::uint64_t context) {
    Frame frame{{.type = type, .context = context, .slot = op.slot, .total = op.size}, {}, op.id};
    frame.payload.assign(op.data, op.data + op.size);
    frame.header.length = static_cast<std::uint32_t>(op.size);
    frames.push_back(std::move(frame));
  }
};

// Rank 0 and rank 1.
struct Two {
  Wire from[2];  // what each has queued for the other
  MessageContext context[2] = {MessageContext(1, 0, [this](int) -> FrameSender& { return from[0]; }),
                               MessageContext(1, 1, [this](int) -> FrameSender& { return from[1]; })};

  void send(int rank, std::uint64_t slot, const Bytes& data, Completions& completions) {
    completions.begin();
    REQUIRE(
        context[rank]
            .send({.to = 1 - rank, .slot = slot, .data = data.data(), .size = data.size(), .completions = &completions})
            .is_ok());
  }
  void recv(int rank, std::uint64_t slot, Bytes& data, Completions& completions) {
    completions.begin();
    RecvOp op;
    op.sources = {1 - rank};
    op.slot = slot;
    op.data = data.data();
    op.size = data.size();
    op.completions = &completions;
    REQUIRE(context[rank].recv(op).is_ok());
  }
  // Delivers the oldest frame that `rank` has queued; yields its type.
  FrameType deliver(int rank) {
    REQUIRE_FALSE(from[rank].frames.empty());
    const Frame frame = std::move(from[rank].frames.front());
    from[rank].frames.pop_front();
    MessageContext& to = context[1 - rank];
    switch (frame.header.type) {
      case FrameType::kEager: CHECK(to.on_eager(rank, frame.header, frame.payload).is_ok()); break;
      case FrameType::kRequest: CHECK(to.on_request(rank, frame.header).is_ok()); break;
      case FrameType::kCredit: CHECK(to.on_credit(rank, frame.header).is_ok()); break;
      case FrameType::kFail: to.fail(Status::precondition(std::string(as_text(frame.payload)))); break;
      default: deliver_data(rank, frame); break;
    }
    if (frame.op_id != 0) context[rank].on_sent(1 - rank, {1, frame.header.slot, frame.op_id});
    return frame.header.type;
  }
  void deliver_data(int rank, const Frame& frame) {
    const auto op = context[1 - rank].on_data_begin(rank, frame.header);
    REQUIRE(op.is_ok());
    if (op.value() == nullptr) return;
    if (op.value()->data != nullptr) std::memcpy(op.value()->data, frame.payload.data(), frame.payload.size());
    context[1 - rank].on_data_end(rank, frame.header, *op.value());
  }
};

}  // namespace

TEST_CASE("A small message costs one frame when its receive is posted", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  const Bytes out(4, 9);
  Bytes in(4);
  two.recv(1, 5, in, received);
  CHECK(two.from[1].frames.empty());
  two.send(0, 5, out, sent);
  CHECK(two.deliver(0) == FrameType::kEager);
  CHECK(received.take_recv().value() == 0);
  CHECK(sent.take_send().value() == 1);
  CHECK(in == out);
  CHECK(two.from[0].frames.empty());
  CHECK(two.from[1].frames.empty());
}

TEST_CASE("A large message needs only the credit that its receive gave in advance", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  const Bytes out(100000, 9);
  Bytes in(100000);
  two.recv(1, 5, in, received);
  CHECK(two.deliver(1) == FrameType::kCredit);
  two.send(0, 5, out, sent);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(received.recv_ready());
  CHECK(in == out);
}

TEST_CASE("Only what moves this context's messages is its progress", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  const Bytes out(100000, 9);
  Bytes in(100000);
  CHECK(two.context[0].progress() == ContextProgress{});
  two.send(0, 5, out, sent);  // no credit yet
  const ContextProgress asked = two.context[0].progress();
  CHECK(asked.waits_for == std::vector<int>{1});
  two.from[0].written = 1000;  // of other contexts
  two.from[0].read = 1000;
  CHECK(two.context[0].progress() == asked);
  two.recv(1, 5, in, received);
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
  CHECK(received.recv_ready());
  CHECK(two.context[0].progress().waits_for.empty());
  CHECK(two.context[1].progress().waits_for.empty());
}

TEST_CASE("Request and credit that cross on the way stand for one message", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  const Bytes out(100000, 9);
  Bytes in(100000);
  two.send(0, 5, out, sent);
  two.recv(1, 5, in, received);
  CHECK(two.deliver(1) == FrameType::kCredit);
  CHECK(two.deliver(0) == FrameType::kRequest);
  CHECK(two.from[1].frames.empty());  // no second credit
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(received.recv_ready());
}

TEST_CASE("A small message without budget asks first and does not take a large one's credit", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  const Bytes small(4, 1);
  const Bytes large(100000, 2);
  Bytes small_in(4);
  Bytes large_in(100000);
  two.from[0].budget = 0;
  two.recv(1, 5, small_in, received);
  two.recv(1, 5, large_in, received);
  CHECK(two.deliver(1) == FrameType::kCredit);  // of the large one
  two.send(0, 5, small, sent);
  two.send(0, 5, large, sent);
  CHECK(two.deliver(0) == FrameType::kRequest);
  CHECK(two.deliver(1) == FrameType::kCredit);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(small_in == small);
  CHECK(large_in == large);
}

TEST_CASE("Eager messages that come early wait in order and free their budget when taken", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  const Bytes a(10, 1);
  const Bytes b(10, 2);
  two.send(0, 5, a, sent);
  two.send(0, 5, b, sent);
  two.deliver(0);
  two.deliver(0);
  CHECK(two.from[1].consumed == 0);
  Bytes in(10);
  two.recv(1, 5, in, received);
  CHECK(in == a);
  CHECK(two.from[1].consumed == 10);
  two.recv(1, 5, in, received);
  CHECK(in == b);
}

TEST_CASE("Data without credit is an error of the peer", "[unit][transport]") {
  Two two;
  const FrameHeader header{.type = FrameType::kData, .length = 10, .context = 1, .slot = 3, .total = 10};
  CHECK(two.context[1].on_data_begin(0, header).status().code() == StatusCode::kPrecondition);
  Bytes in(100000);
  Completions received;
  two.recv(1, 3, in, received);
  FrameHeader skipping{.type = FrameType::kData, .length = 10, .context = 1, .slot = 3, .offset = 10, .total = 100000};
  CHECK_FALSE(two.context[1].on_data_begin(0, skipping).is_ok());
}

TEST_CASE("A cancelled receive with credit swallows its message", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions later;
  const Bytes out(100000, 9);
  Bytes in(100000, 1);
  Completions received;
  two.recv(1, 5, in, received);
  two.deliver(1);
  two.context[1].cancel(received, [](int, std::uint64_t) {});
  two.send(0, 5, out, sent);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(in == Bytes(100000, 1));
  CHECK(sent.send_ready());
  Bytes next(4);
  const Bytes small(4, 7);
  two.recv(1, 5, next, later);
  two.send(0, 5, small, sent);
  two.deliver(0);
  CHECK(next == small);
}

TEST_CASE("A cancelled send breaks the context on both ends", "[unit][transport]") {
  Two two;
  const Bytes out(100000, 9);
  Bytes in(100000);
  Completions received;
  Completions sent;
  two.recv(1, 5, in, received);
  two.send(0, 5, out, sent);
  CHECK(two.deliver(0) == FrameType::kRequest);
  two.context[0].cancel(sent, [](int, std::uint64_t) {});
  CHECK(two.deliver(0) == FrameType::kFail);
  REQUIRE(received.recv_ready());
  CHECK(received.take_recv().status().message().find("gave up a send") != std::string::npos);
  CHECK_FALSE(two.context[0].send({.to = 1, .slot = 1, .completions = &sent}).is_ok());
}

TEST_CASE("A lost peer fails what needs it and refuses what comes later", "[unit][transport]") {
  Two two;
  Bytes in(4);
  Completions received;
  two.recv(1, 5, in, received);
  const Status why = Status::peer_lost("lost rank 0");
  two.from[1].end = why;
  two.context[1].fail_peer(0, why);
  CHECK(received.take_recv().status().code() == StatusCode::kPeerLost);
  Completions later;
  later.begin();
  RecvOp op;
  op.sources = {0};
  op.completions = &later;
  CHECK(two.context[1].recv(op).code() == StatusCode::kPeerLost);
}

TEST_CASE("A message that came before its sender was lost can still be received", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  const Bytes out(4, 9);
  Bytes in(4);
  two.send(0, 5, out, sent);
  two.deliver(0);
  two.from[1].end = Status::peer_lost("lost rank 0");
  two.context[1].fail_peer(0, two.from[1].end);
  two.recv(1, 5, in, received);
  CHECK(received.take_recv().value() == 0);
  CHECK(in == out);
}

TEST_CASE("Different sizes of a send and its receive fail the context on both ends", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  const std::size_t send_size = GENERATE(4U, 100000U);
  const bool receive_first = GENERATE(true, false);
  const Bytes out(send_size, 9);
  Bytes in(200000);
  if (receive_first) two.recv(1, 5, in, received);
  two.send(0, 5, out, sent);
  if (!receive_first) two.recv(1, 5, in, received);
  for (int turn = 0; turn < 8; ++turn) {
    for (int rank : {0, 1}) {
      if (!two.from[rank].frames.empty()) two.deliver(rank);
    }
  }
  REQUIRE(received.recv_ready());
  const std::string why = received.take_recv().status().message();
  CHECK(why.find("disagree on the size of a message: " + std::to_string(send_size) + " bytes sent, 200000 bytes") !=
        std::string::npos);
  CHECK_FALSE(two.context[0].send({.to = 1, .slot = 6, .completions = &sent}).is_ok());
  CHECK_FALSE(two.context[1].send({.to = 0, .slot = 6, .completions = &sent}).is_ok());
}

TEST_CASE("Messages of one slot go one after another, those of other slots at once", "[unit][transport]") {
  Two two;
  Completions sent;
  const Bytes large(100000, 1);
  const Bytes small(4, 2);
  two.send(0, 5, large, sent);
  two.send(0, 5, small, sent);
  two.send(0, 6, small, sent);
  REQUIRE(two.from[0].frames.size() == 2);
  CHECK(two.from[0].frames[0].header.type == FrameType::kRequest);
  CHECK(two.from[0].frames[1].header.slot == 6);
  Completions received;
  Bytes in(100000);
  two.recv(1, 5, in, received);
  two.deliver(0);
  two.deliver(0);
  CHECK(two.deliver(1) == FrameType::kCredit);
  CHECK(two.deliver(0) == FrameType::kData);
  REQUIRE(two.from[0].frames.size() == 1);  // now the small one's turn has come
  CHECK(two.from[0].frames[0].header.slot == 5);
}

TEST_CASE("A receive from either of several ranks gives no credit in advance", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  Bytes in(100000);
  RecvOp op;
  op.sources = {0, 1};
  op.slot = 5;
  op.data = in.data();
  op.size = in.size();
  op.completions = &received;
  received.begin();
  REQUIRE(two.context[1].recv(op).is_ok());
  CHECK(two.from[1].frames.empty());
  const Bytes out(100000, 9);
  two.send(0, 5, out, sent);
  CHECK(two.deliver(0) == FrameType::kRequest);
  CHECK(two.deliver(1) == FrameType::kCredit);
  CHECK(two.deliver(0) == FrameType::kData);
  CHECK(received.take_recv().value() == 0);
  CHECK((in == out));
}

TEST_CASE("A message of no bytes is a message", "[unit][transport]") {
  Two two;
  Completions sent;
  Completions received;
  const Bytes out;
  Bytes in;
  two.recv(1, 5, in, received);
  two.send(0, 5, out, sent);
  CHECK(two.deliver(0) == FrameType::kEager);
  CHECK(received.take_recv().value() == 0);
  CHECK(sent.take_send().value() == 1);
}

TEST_CASE("A peer that sends what nobody receives is stopped before memory ends", "[unit][transport]") {
  Two two;
  const FrameHeader credit{.type = FrameType::kCredit, .context = 1, .slot = 3, .total = 100000};
  Status last;
  std::size_t taken = 0;
  for (; last.is_ok() && taken <= MessageContext::kMaxUnmatched; ++taken) last = two.context[1].on_credit(0, credit);
  CHECK(taken == MessageContext::kMaxUnmatched + 1);
  CHECK(last.message() == "rank 0 sent more than 1048576 messages that nobody receives");
}
