#include "runtime/transport/data/peer_link.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <latch>
#include <thread>

#include "runtime/base/fd.h"

using namespace hvd;
using namespace hvd::transport;

namespace {

// Notes what it is told. The thread that is the first to report a sent message gets no further until it is let go, as
// if the system had taken the processor from it.
struct SlowSink final : FrameSink {
  Status on_eager(int, const FrameHeader&, ByteSpan) override { return Status::ok(); }
  Status on_notice(int, const FrameHeader&, ByteSpan) override { return Status::ok(); }
  Result<RecvOp*> on_data_begin(int, const FrameHeader&) override { return static_cast<RecvOp*>(nullptr); }
  void on_data_end(const FrameHeader&, RecvOp&) override {}
  void on_sent(int, const SentMessage& message) override {
    if (!stopped.exchange(true)) {
      writes.count_down();
      let_go.wait();
      return;
    }
    sent_before_end = sent_before_end || (!lost && message.op_id == 7);
  }
  void on_lost(int, const Status&) override { lost = true; }

  std::atomic<bool> stopped{false};
  std::latch writes{1};
  std::latch let_go{1};
  std::atomic<bool> sent_before_end{false};
  std::atomic<bool> lost{false};
};

}  // namespace

TEST_CASE("What the peer has received is reported before its end, by whatever thread", "[multi][transport]") {
  SlowSink sink;
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  const std::atomic<int> used{1};
  PeerLink link(1, 1, epoll.get(), sink, used);
  int ends[2] = {-1, -1};
  ForkFd ours = ForkFd::make(
      [&] { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0 ? ends[0] : -1; });
  Fd peer(ends[1]);
  const bool attached = link.attach(0, Stream(std::move(ours)), "host");
  REQUIRE(attached);

  const std::uint8_t payload = 1;
  SendOp op;
  op.id = 7;
  op.to = 1;
  op.data = &payload;
  op.size = 1;
  REQUIRE(link.reserve_eager(op.size));
  link.queue_eager(op, 1);
  std::thread writer([&] { link.flush(); });
  sink.writes.wait();  // it is written, and not reported

  std::uint8_t received[256];
  CHECK(read(peer.get(), received, sizeof(received)) == static_cast<ssize_t>(kFrameHeaderSize) + 1);
  peer.reset();
  epoll_event end{};
  REQUIRE(epoll_wait(epoll.get(), &end, 1, 5000) == 1);
  static_cast<Connection*>(end.data.ptr)->on_io(true, false);
  CHECK(sink.lost);
  CHECK(sink.sent_before_end);
  sink.let_go.count_down();
  writer.join();
}
