#include "runtime/transport/data/tx_queue.h"

#include <array>
#include <catch2/catch.hpp>
#include <tuple>

using namespace hvd;
using namespace hvd::transport;

namespace {

struct Piece {
  FrameHeader header;
  Bytes payload;
};

// A queue that is the only one of its messages, and what of them is written.
struct Sender {
  explicit Sender(std::uint64_t epoch) : queue(epoch, messages) {}

  void push_message(std::uint64_t slot, const Bytes& data, std::uint64_t op_id) {
    const FrameHeader header{.type = FrameType::kData, .context = 1, .slot = slot, .total = data.size()};
    messages.push(header, data.data(), {1, slot, op_id});
    queue.push_begin(header, {1, slot, op_id});
  }
  std::size_t gather(std::span<iovec> parts) {
    queue.cut_ahead(TxQueue::kAhead);
    return queue.gather(parts);
  }
  void advance(std::size_t bytes) {
    std::vector<WrittenFrame> frames;
    queue.advance(bytes, frames);
    for (const WrittenFrame& frame : frames) {
      if (!frame.is_part || messages.written(frame.message, frame.bytes)) sent.push_back(frame.message);
    }
  }
  bool cancel(std::uint64_t op_id) {
    messages.cancel(1, op_id);
    return queue.cancel(1, op_id);
  }

  OutgoingMessages messages;
  TxQueue queue;
  std::vector<SentMessage> sent;
};

// One write of at most `step` bytes; yields them, none at the end.
Bytes write_once(Sender& sender, std::size_t step) {
  Bytes written;
  iovec parts[8];
  const std::size_t count = sender.gather(parts);
  for (std::size_t i = 0; i < count && written.size() < step; ++i) {
    const auto* at = static_cast<const std::uint8_t*>(parts[i].iov_base);
    written.insert(written.end(), at, at + std::min(step - written.size(), parts[i].iov_len));
  }
  sender.advance(written.size());
  return written;
}

// Writes everything in steps of `step` bytes and cuts the result into frames.
std::vector<Piece> drain(Sender& sender, std::size_t step) {
  Bytes stream;
  for (Bytes more = write_once(sender, step); !more.empty(); more = write_once(sender, step)) {
    stream.insert(stream.end(), more.begin(), more.end());
  }
  std::vector<Piece> pieces;
  for (std::size_t at = 0; at < stream.size();) {
    const FrameHeader header = FrameHeader::decode(ByteSpan(stream).subspan(at, kFrameHeaderSize)).value();
    const ByteSpan payload = ByteSpan(stream).subspan(at + kFrameHeaderSize, header.length);
    if (header.type != FrameType::kBegin) pieces.push_back({header, Bytes(payload.begin(), payload.end())});
    at += kFrameHeaderSize + header.length;
  }
  return pieces;
}

}  // namespace

TEST_CASE("Two large messages take turns by pieces of at most 256 KiB", "[unit][transport]") {
  Bytes a(600U << 10U);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::uint8_t>(i % 251);
  const Bytes b(300U << 10U, 2);
  Sender sender(7);
  sender.push_message(10, a, 100);
  sender.push_message(20, b, 200);
  const auto pieces = drain(sender, 100000);
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
  REQUIRE(sender.sent.size() == 2);
  CHECK(sender.sent[0].op_id == 200);
  CHECK(sender.sent[1].op_id == 100);
}

TEST_CASE("A small frame waits for no more than what is cut ahead", "[unit][transport]") {
  const Bytes large(8U << 20U, 1);
  Sender sender(1);
  sender.push_message(1, large, 1);
  iovec parts[8];
  sender.gather(parts);
  sender.queue.push_control({.type = FrameType::kCredit, .context = 1, .slot = 2, .offset = 1, .total = 5});
  const auto pieces = drain(sender, 65536);
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
  const std::size_t second_end = first_end + 2 * kFrameHeaderSize + data.size();  // beginning and piece
  for (const std::size_t step : {std::size_t{1}, std::size_t{47}, std::size_t{48}, std::size_t{10000}}) {
    INFO("steps of " << step << " bytes");
    Sender sender(1);
    const std::vector<SentMessage>& sent = sender.sent;
    sender.queue.push_eager({.context = 1, .slot = 1, .total = 4}, data.data(), 1);
    sender.push_message(2, data, 2);
    std::size_t wrong = 0;
    for (std::size_t written = 0; written < second_end;) {
      written += write_once(sender, step).size();
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
  Sender sender(1);
  iovec parts[8];
  sender.push_message(2, data, 2);
  SECTION("nothing written") {
    sender.gather(parts);
    CHECK(sender.cancel(2));
    CHECK(sender.gather(parts) == 0);
  }
  SECTION("one frame written") {
    sender.gather(parts);
    sender.advance(2 * kFrameHeaderSize + kMaxChunk);
    CHECK(sender.cancel(2));
    CHECK(sender.gather(parts) == 0);
  }
  SECTION("in the middle of a frame") {
    sender.gather(parts);
    sender.advance(kFrameHeaderSize + 1);
    CHECK_FALSE(sender.cancel(2));
  }
  SECTION("another message is in the middle of a frame") {
    sender.gather(parts);
    sender.advance(kFrameHeaderSize + 1);
    sender.push_message(3, data, 3);
    CHECK(sender.cancel(3));
    CHECK(sender.gather(parts) > 0);
  }
  CHECK(sender.sent.empty());
}

TEST_CASE("A message is written with its last piece and its beginning, wherever they go", "[unit][transport]") {
  const Bytes data(600U << 10U, 3);
  OutgoingMessages messages;
  messages.push({.type = FrameType::kData, .slot = 1, .total = data.size()}, data.data(), {1, 1, 1});
  TxQueue first(1, messages);
  TxQueue second(1, messages);
  first.push_begin({.slot = 1, .total = data.size()}, {1, 1, 1});
  iovec parts[8];
  std::vector<WrittenFrame> written;
  second.cut_piece(kMaxChunk);
  second.cut_piece(kMaxChunk);  // has a piece already
  CHECK(second.gather(parts) == 2);
  first.cut_ahead(TxQueue::kAhead);
  CHECK(first.gather(parts) == 5);
  second.advance(kFrameHeaderSize + kMaxChunk, written);
  first.advance(3 * kFrameHeaderSize + data.size() - kMaxChunk, written);
  REQUIRE(written.size() == 4);
  for (const WrittenFrame& frame : written) {
    CHECK(frame.is_part);
    CHECK(messages.written(frame.message, frame.bytes) == (&frame == &written.back()));
  }
}

TEST_CASE("A message that is one piece can be cut smaller, and comes whole before the next", "[unit][transport]") {
  constexpr std::size_t kHalf = kMaxChunk / 2;
  const Bytes data(2 * kMaxChunk + 100, 3);
  OutgoingMessages messages;
  const std::array<std::size_t, 4> sizes{kMaxChunk, data.size(), kHalf + 8, kMaxChunk};
  for (std::uint64_t slot = 0; slot < sizes.size(); ++slot) {
    messages.push({.type = FrameType::kData, .slot = slot, .total = sizes[slot]}, data.data(), {1, slot, slot});
  }
  using Cut = std::tuple<std::uint64_t, std::uint64_t, std::size_t>;  // slot, offset, length
  std::vector<Cut> cuts;
  const auto cut = [&](std::size_t most) {
    const auto piece = messages.cut(most);
    REQUIRE(piece);
    CHECK(piece->data == data.data() + piece->header.offset);
    cuts.emplace_back(piece->header.slot, piece->header.offset, piece->header.length);
  };
  for (int i = 0; i < 6; ++i) cut(kHalf);
  cut(kMaxChunk);  // what is left of it
  for (int i = 0; i < 2; ++i) cut(kHalf);
  CHECK(cuts == std::vector<Cut>{{0, 0, kHalf},
                                 {0, kHalf, kHalf},
                                 {1, 0, kMaxChunk},
                                 {2, 0, kHalf},
                                 {2, kHalf, 8},
                                 {3, 0, kHalf},
                                 {3, kHalf, kHalf},
                                 {1, kMaxChunk, kMaxChunk},
                                 {1, 2 * kMaxChunk, 100}});
  CHECK_FALSE(messages.cut());
}
