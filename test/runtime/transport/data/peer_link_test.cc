// Several connections to one rank: what goes over which, and when the rank is lost.
#include "runtime/transport/data/peer_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <utility>

#include "runtime/base/fd.h"

using namespace hvd;
using namespace hvd::transport;

namespace {

constexpr int kSockets = 3;

// A link with three streams whose other ends the test reads, and what it tells.
struct Sink final : FrameSink {
  Sink() {
    for (int number = 0; number < kSockets; ++number) {
      int ends[2] = {-1, -1};
      ForkFd ours = ForkFd::make(
          [&] { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0 ? ends[0] : -1; });
      peers.emplace_back(ends[1]);
      const bool attached = link.attach(number, Stream(std::move(ours)), "host");
      REQUIRE(attached);
    }
  }
  Status on_eager(int, const FrameHeader&, ByteSpan) override { return Status::ok(); }
  Status on_notice(int, const FrameHeader&, ByteSpan) override {
    ++notices;
    return Status::ok();
  }
  Result<RecvOp*> on_data_begin(int, const FrameHeader&) override { return static_cast<RecvOp*>(nullptr); }
  void on_data_end(const FrameHeader&, RecvOp&) override {}
  void on_sent(int, const SentMessage&) override { ++sent; }
  void on_lost(int, const Status& why) override { lost = why; }

  // What the sockets have for us, as the driver would.
  void drive() {
    epoll_event events[8];
    for (int n = epoll_wait(epoll.get(), events, 8, 0); n > 0; n = epoll_wait(epoll.get(), events, 8, 0)) {
      for (int i = 0; i < n; ++i) {
        const bool writable = (events[i].events & EPOLLOUT) != 0;
        static_cast<Connection*>(events[i].data.ptr)->on_io((events[i].events & ~EPOLLOUT) != 0, writable);
      }
    }
  }
  // The bytes of pieces by their offsets, of what comes on one connection until nothing does.
  void read_all(int number, Bytes& stream) {
    std::uint8_t part[65536];
    for (ssize_t n = 1; n > 0;) {
      n = read(peers[static_cast<std::size_t>(number)].get(), part, sizeof(part));
      if (n > 0) stream.insert(stream.end(), part, part + n);
    }
  }

  Fd epoll{epoll_create1(EPOLL_CLOEXEC)};
  std::vector<Fd> peers;
  int notices = 0;
  int sent = 0;
  Status lost;
  std::atomic<int> used{kSockets};
  PeerLink link{1, 1, epoll.get(), *this, used};
};

void for_each_frame(ByteSpan stream, const std::function<void(const FrameHeader&, ByteSpan)>& fn) {
  while (!stream.empty()) {
    const FrameHeader header = FrameHeader::decode(stream.first(kFrameHeaderSize)).value();
    fn(header, stream.subspan(kFrameHeaderSize, header.length));
    stream = stream.subspan(kFrameHeaderSize + header.length);
  }
}

}  // namespace

TEST_CASE("The pieces of a large message go over all connections, and its beginning over the first",
          "[multi][transport]") {
  Sink sink;
  Bytes data(8U << 20U);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i % 251);
  SendOp op{.id = 7, .to = 1, .slot = 3, .data = data.data(), .size = data.size(), .receive = 5};
  sink.link.queue_message(op, 1);
  sink.link.flush();
  CHECK(sink.sent == 0);
  std::vector<Bytes> streams(kSockets);
  while (sink.sent == 0) {
    for (int number = 0; number < kSockets; ++number) sink.read_all(number, streams[static_cast<std::size_t>(number)]);
    sink.drive();
  }
  CHECK(sink.sent == 1);
  Bytes again(data.size());
  std::size_t begins = 0;
  for (int number = 0; number < kSockets; ++number) {
    Bytes& stream = streams[static_cast<std::size_t>(number)];
    sink.read_all(number, stream);
    std::size_t pieces = 0;
    for_each_frame(stream, [&](const FrameHeader& header, ByteSpan payload) {
      CHECK(header.slot == 5);
      CHECK(header.total == data.size());
      begins += header.type == FrameType::kBegin && number == 0 ? 1 : 0;
      pieces += header.type == FrameType::kData ? 1 : 0;
      std::ranges::copy(payload, again.begin() + static_cast<std::ptrdiff_t>(header.offset));
    });
    CHECK(pieces > 0);
  }
  CHECK(begins == 1);
  CHECK((again == data));
}

TEST_CASE("Messages go over as many connections as are used when they are cut", "[multi][transport]") {
  Sink sink;
  const Bytes data(8U << 20U);
  const auto send_over = [&](int used) {
    sink.used = used;
    const int sent = sink.sent;
    sink.link.queue_message({.id = 7, .to = 1, .slot = 3, .data = data.data(), .size = data.size(), .receive = 5}, 1);
    sink.link.flush();
    std::vector<Bytes> streams(kSockets);
    const auto read_all = [&] {
      for (int n = 0; n < kSockets; ++n) sink.read_all(n, streams[static_cast<std::size_t>(n)]);
    };
    while (sink.sent == sent) {
      read_all();
      sink.drive();
    }
    read_all();
    std::size_t bytes = 0;
    std::set<int> carriers;
    for (int number = 0; number < kSockets; ++number) {
      for_each_frame(streams[static_cast<std::size_t>(number)], [&](const FrameHeader& header, ByteSpan payload) {
        if (header.type == FrameType::kData) carriers.insert(number);
        bytes += payload.size();
      });
    }
    CHECK(bytes == data.size());
    return carriers;
  };
  CHECK(send_over(3) == std::set{0, 1, 2});
  CHECK(send_over(2) == std::set{0, 1});
  CHECK(send_over(1) == std::set{0});
  CHECK(send_over(8) == std::set{0, 1, 2});  // all that are there
}

TEST_CASE("Messages of one piece go in halves over several connections, one after the other", "[multi][transport]") {
  Sink sink;
  const Bytes data(kMaxChunk);
  for (std::uint64_t id : {1U, 2U, 3U}) {
    sink.link.queue_message({.id = id, .to = 1, .slot = 3, .data = data.data(), .size = data.size(), .receive = id}, 1);
  }
  sink.link.flush();
  std::vector<Bytes> streams(kSockets);
  while (sink.sent < 3) {
    for (int number = 0; number < kSockets; ++number) sink.read_all(number, streams[static_cast<std::size_t>(number)]);
    sink.drive();
  }
  std::array<std::set<int>, 4> carriers;  // of each message
  for (int number = 0; number < kSockets; ++number) {
    Bytes& stream = streams[static_cast<std::size_t>(number)];
    sink.read_all(number, stream);
    std::uint64_t last = 0;
    for_each_frame(stream, [&](const FrameHeader& header, ByteSpan payload) {
      if (header.type != FrameType::kData) return;
      CHECK(payload.size() == kMaxChunk / 2);
      CHECK(header.slot >= std::exchange(last, header.slot));
      carriers[header.slot].insert(number);
    });
  }
  CHECK(carriers[1].size() == 2);  // the sockets are empty then
}

TEST_CASE("A rank is lost when all its connections have ended, and what was said before is read",
          "[multi][transport]") {
  Sink sink;
  const auto notice = FrameHeader{.type = FrameType::kRequest, .epoch = 1, .total = 9}.encode();
  sink.peers[1].reset();
  sink.drive();
  CHECK(sink.lost.is_ok());
  CHECK(sink.link.lost().is_ok());
  REQUIRE(write(sink.peers[0].get(), notice.data(), notice.size()) == static_cast<ssize_t>(notice.size()));
  sink.peers[0].reset();
  sink.peers[2].reset();
  sink.drive();
  CHECK(sink.notices == 1);
  CHECK(sink.lost.message().find("lost rank 1 on host host") == 0);
  CHECK_FALSE(sink.link.lost().is_ok());
}

TEST_CASE("A connection that ends alone costs the rank after a second, one that breaks at once", "[multi][transport]") {
  Sink sink;
  SECTION("ends") {
    sink.peers[2].reset();
    sink.drive();
    CHECK(sink.lost.is_ok());
    const TimePoint start = SteadyClock::now();
    while (sink.lost.is_ok() && SteadyClock::now() - start < Millis(20'000)) {
      epoll_event none{};
      epoll_wait(sink.epoll.get(), &none, 1, 50);
      sink.link.check_liveness();
    }
    CHECK(SteadyClock::now() - start >= Millis(1000));
  }
  SECTION("breaks") {
    Bytes nonsense(kFrameHeaderSize, 0xff);
    REQUIRE(write(sink.peers[2].get(), nonsense.data(), nonsense.size()) == static_cast<ssize_t>(nonsense.size()));
    sink.drive();
  }
  CHECK_FALSE(sink.lost.is_ok());
  std::uint8_t byte = 0;
  for (const int open : {0, 1}) CHECK(read(sink.peers[static_cast<std::size_t>(open)].get(), &byte, 1) == 0);
}
