#include "runtime/transport/data/tx_queue.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::transport;

namespace {

struct Piece {
  FrameHeader header;
  Bytes payload;
};

// One write of at most `step` bytes; yields them.
Bytes write_once(TxQueue& queue, std::size_t step, std::vector<SentMessage>& sent) {
  Bytes written;
  iovec parts[8];
  const std::size_t count = queue.gather(parts);
  for (std::size_t i = 0; i < count && written.size() < step; ++i) {
    const auto* at = static_cast<const std::uint8_t*>(parts[i].iov_base);
    written.insert(written.end(), at, at + std::min(step - written.size(), parts[i].iov_len));
  }
  queue.advance(written.size(), sent);
  return written;
}

// Writes everything in steps of `step` bytes and cuts the result into frames.
std::vector<Piece> drain(TxQueue& queue, std::size_t step, std::vector<SentMessage>& sent) {
  Bytes stream;
  while (!queue.empty()) {
    const Bytes more = write_once(queue, step, sent);
    stream.insert(stream.end(), more.begin(), more.end());
  }
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at < stream.size();) {
    const FrameHeader header = FrameHeader::decode(ByteSpan(stream).subspan(at, kFrameHeaderSize)).value();
    const ByteSpan payload = ByteSpan(stream).subspan(at + kFrameHeaderSize, header.length);
    pieces.push_back({header, Bytes(payload.begin(), payload.end())});
    at += kFrameHeaderSize + header.length;
  }
  return pieces;
}

}  // namespace

TEST_CASE("Two large messages take turns by pieces of at most 256 KiB", "[unit][transport]") {
  Bytes a(600U << 10U);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint8_t>(i % 251);
  const Bytes b(300U << 10U, 2);
  TxQueue queue(7);
  queue.push_message({.context = 1, .slot = 10, .total = a.size()}, a.data(), 100);
  queue.push_message({.context = 1, .slot = 20, .total = b.size()}, b.data(), 200);
  std::vector<SentMessage> sent;
  const auto pieces = drain(queue, 100000, sent);
  std::vector<std::uint64_t> slots;
  Bytes again;
  for (const Piece& piece : pieces) {
    CHECK(piece.payload.size() <= kMaxChunk);
    CHECK(piece.header.epoch == 7);
    slots.push_back(piece.header.slot);
    if (piece.header.slot != 10) continue;
    CHECK(piece.header.offset == again.size());
    again.insert(again.end(), piece.payload.begin(), piece.payload.end());
  }
  CHECK((again == a));
  CHECK(slots == std::vector<std::uint64_t>{10, 20, 10, 20, 10});
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].op_id == 200);
  CHECK(sent[1].op_id == 100);
}

TEST_CASE("A small frame waits for no more than what is cut ahead", "[unit][transport]") {
  const Bytes large(8U << 20U, 1);
  TxQueue queue(1);
  queue.push_message({.context = 1, .slot = 1, .total = large.size()}, large.data(), 1);
  iovec parts[8];
  queue.gather(parts);
  queue.push_control({.type = FrameType::kCredit, .context = 1, .slot = 2, .total = 5});
  std::vector<SentMessage> sent;
  const auto pieces = drain(queue, 65536, sent);
  std::size_t before = 0;
  for (const Piece& piece : pieces) {
    if (piece.header.type == FrameType::kCredit) break;
    before += piece.payload.size();
  }
  CHECK(before <= TxQueue::kAhead);
}

TEST_CASE("A message is reported as sent with its last byte, whatever the steps", "[unit][transport]") {
  const Bytes data(5000, 3);
  const std::size_t first_end = kFrameHeaderSize + 4;
  const std::size_t second_end = first_end + kFrameHeaderSize + data.size();
  for (const std::size_t step : {std::size_t{1}, std::size_t{47}, std::size_t{48}, std::size_t{10000}}) {
    INFO("steps of " << step << " bytes");
    TxQueue queue(1);
    queue.push_eager({.context = 1, .slot = 1, .total = 4}, data.data(), 1);
    queue.push_message({.context = 1, .slot = 2, .total = data.size()}, data.data(), 2);
    std::vector<SentMessage> sent;
    std::size_t wrong = 0;
    for (std::size_t written = 0; !queue.empty();) {
      written += write_once(queue, step, sent).size();
      const std::size_t expected = (written >= first_end ? 1U : 0U) + (written >= second_end ? 1U : 0U);
      if (sent.size() != expected) ++wrong;
    }
    CHECK(wrong == 0);
    REQUIRE(sent.size() == 2);
    CHECK(sent[0].op_id == 1);
    CHECK(sent[1].op_id == 2);
  }
}

TEST_CASE("A message can be taken back between its frames but not inside one", "[unit][transport]") {
  const Bytes data(600U << 10U, 3);
  std::vector<SentMessage> sent;
  TxQueue queue(1);
  iovec parts[8];
  queue.push_message({.context = 1, .slot = 2, .total = data.size()}, data.data(), 2);
  SECTION("nothing written") {
    queue.gather(parts);
    CHECK(queue.cancel(1, 2));
    CHECK(queue.empty());
  }
  SECTION("one frame written") {
    queue.gather(parts);
    queue.advance(kFrameHeaderSize + kMaxChunk, sent);
    CHECK(queue.cancel(1, 2));
    CHECK(queue.empty());
  }
  SECTION("in the middle of a frame") {
    queue.gather(parts);
    queue.advance(kFrameHeaderSize + 1, sent);
    CHECK_FALSE(queue.cancel(1, 2));
  }
  SECTION("another message is in the middle of a frame") {
    queue.gather(parts);
    queue.advance(kFrameHeaderSize + 1, sent);
    queue.push_message({.context = 2, .slot = 2, .total = data.size()}, data.data(), 2);
    CHECK(queue.cancel(2, 2));
    CHECK_FALSE(queue.empty());
  }
  CHECK(sent.empty());
}
