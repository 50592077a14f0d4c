#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>

#include "runtime/transport/data/message_context.h"

// Two contexts without sockets, joined by queues of frames that the test moves.
namespace hvd::transport::test {

struct Frame {
  FrameHeader header;
  Bytes payload;
  std::uint64_t op_id = 0;
  std::uint64_t slot = 0;  // of the message
};

// The sending half of a connection: keeps frames until the test delivers them.
class Wire final : public FrameSender {
 public:
  bool reserve_eager(std::size_t size) override { return size <= budget; }
  void queue_eager(const SendOp& op, std::uint64_t context) override { queue(FrameType::kEager, op, context); }
  void queue_message(const SendOp& op, std::uint64_t context) override {
    frames.push_back({{.type = FrameType::kBegin, .context = context, .slot = op.receive, .total = op.size}, {}});
    queue(FrameType::kData, op, context);
    frames.back().header.slot = op.receive;
  }
  void queue_notice(const FrameHeader& header, std::string_view text) override {
    frames.push_back({header, Bytes(text.begin(), text.end())});
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
    Frame frame{{.type = type, .context = context, .slot = op.slot, .total = op.size}, {}, op.id, op.slot};
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

  Completions sent;      // of all that either sends
  Completions received;  // where a test names no others

  void send(int rank, std::uint64_t slot, const Bytes& data) {
    sent.begin();
    REQUIRE(context[rank]
                .send({.to = 1 - rank, .slot = slot, .data = data.data(), .size = data.size(), .completions = &sent})
                .is_ok());
  }
  void recv(int rank, std::uint64_t slot, Bytes& data) { recv(rank, slot, data, received); }
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
  // Delivers the oldest frame that `rank` has queued, but for beginnings, which go before; yields its type.
  FrameType deliver(int rank) {
    const FrameType type = deliver_one(rank);
    return type == FrameType::kBegin ? deliver_one(rank) : type;
  }
  FrameType deliver_one(int rank) {
    REQUIRE_FALSE(from[rank].frames.empty());
    const Frame frame = std::move(from[rank].frames.front());
    from[rank].frames.pop_front();
    MessageContext& to = context[1 - rank];
    switch (frame.header.type) {
      case FrameType::kEager: CHECK(to.on_eager(rank, frame.header, frame.payload).is_ok()); break;
      case FrameType::kRequest: CHECK(to.on_request(rank, frame.header).is_ok()); break;
      case FrameType::kCredit: CHECK(to.on_credit(rank, frame.header).is_ok()); break;
      case FrameType::kBegin: CHECK(to.on_begin(rank, frame.header).is_ok()); break;
      case FrameType::kFail: to.fail(Status::precondition(std::string(as_text(frame.payload)))); break;
      default: deliver_data(rank, frame); break;
    }
    if (frame.op_id != 0) context[rank].on_sent(1 - rank, {1, frame.slot, frame.op_id});
    return frame.header.type;
  }
  void deliver_data(int rank, const Frame& frame) {
    const auto op = context[1 - rank].on_data_begin(rank, frame.header);
    REQUIRE(op.is_ok());
    if (op.value() == nullptr) return;
    if (op.value()->data != nullptr) std::memcpy(op.value()->data, frame.payload.data(), frame.payload.size());
    context[1 - rank].on_data_end(frame.header, *op.value());
  }
};

}  // namespace hvd::transport::test
