// A peer that sends as fast as it is read from has its turn, and then others have theirs: a tunnel takes more from its
// socket than it gives, of which neither epoll nor libuv tells.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "runtime/transport/control/control_links.h"
#include "runtime/transport/data/peer_link.h"
#include "runtime/transport/data/progress.h"

using namespace hvd;
using namespace hvd::transport;

namespace {

constexpr std::size_t kMostInATurn = 4U << 20U;  // twice what a turn of either takes
constexpr std::size_t kAll = 16U << 20U;

// Our end of a stream through TLS, and the peer's.
struct Ends {
  Ends() {
    int fds[2] = {-1, -1};
    ForkFd fd = ForkFd::make(
        [&] { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0 ? fds[0] : -1; });
    peer_fd = Fd(fds[1]);
    const auto key = crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, 3)).value();
    auto tunnel = std::make_unique<tls::Tunnel>(fds[0], tls::Role::kAcceptor, key);
    peer = std::make_unique<tls::Tunnel>(fds[1], tls::Role::kConnector, key);
    using Step = tls::Tunnel::Step;
    for (Step a = Step::kWantsRead, b = a; a != Step::kDone || b != Step::kDone;) {
      if (b != Step::kDone) b = peer->shake_hands();
      if (a != Step::kDone) a = tunnel->shake_hands();
      REQUIRE(a != Step::kFailed);
      REQUIRE(b != Step::kFailed);
    }
    ours = Stream(std::move(fd), std::move(tunnel));
  }

  // The peer writes what there is room for; `all` is the end of its work.
  void fill(const Bytes& frame) {
    while (sent < kAll) {
      const iovec part{const_cast<std::uint8_t*>(frame.data()) + at, frame.size() - at};
      const ssize_t n = peer->send({&part, 1});
      if (n < 0) return;
      sent += static_cast<std::size_t>(n);
      at = (at + static_cast<std::size_t>(n)) % frame.size();
    }
  }

  Fd peer_fd;
  std::unique_ptr<tls::Tunnel> peer;
  Stream ours;
  std::size_t sent = 0;
  std::size_t at = 0;
};

// Each message that is taken makes room for the next.
struct Refill final : FrameSink {
  Refill() {
    const auto header = FrameHeader{.length = kMaxEager, .epoch = 1, .context = 1, .total = kMaxEager}.encode();
    frame.assign(header.begin(), header.end());
    frame.resize(header.size() + kMaxEager);
  }
  Status on_eager(int, const FrameHeader&, ByteSpan payload) override {
    taken += payload.size() + kFrameHeaderSize;
    ends.fill(frame);
    return Status::ok();
  }
  Status on_notice(int, const FrameHeader&, ByteSpan) override { return Status::ok(); }
  Result<RecvOp*> on_data_begin(int, const FrameHeader&) override { return static_cast<RecvOp*>(nullptr); }
  void on_data_end(const FrameHeader&, RecvOp&) override {}
  void on_sent(int, const SentMessage&) override {}
  void on_lost(int, const Status& why) override { FAIL(why.message()); }

  Ends ends;
  Bytes frame;
  std::size_t taken = 0;
};

// Goes on for three turns after its descriptor said so once; a second one has a turn of its own each time.
struct Unfinished final : IoHandler {
  bool on_io(void* tag, bool readable, bool) override {
    order += tag == &first ? 'a' : 'b';
    CHECK(readable);
    if (tag == &second) return false;
    std::uint64_t count = 0;
    if (order == "a" || order == "ba") CHECK(read(first.get(), &count, sizeof(count)) == sizeof(count));
    return ++turns < 4;
  }
  void check_liveness() override {}

  Fd first{eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
  Fd second{eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::string order;
  int turns = 0;
};

void watch(const Progress& progress, Fd& fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &fd;
  REQUIRE(epoll_ctl(progress.epoll_fd(), EPOLL_CTL_ADD, fd.get(), &event) == 0);
}

bool is_ready(const Progress& progress) {
  pollfd fd{progress.epoll_fd(), POLLIN, 0};
  return poll(&fd, 1, 0) == 1;
}

}  // namespace

TEST_CASE("A data connection through TLS leaves the rest for its next turn", "[multi][transport][tls]") {
  Refill sink;
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  const std::atomic<int> used{1};
  PeerLink link(1, 1, epoll.get(), sink, used);
  sink.ends.fill(sink.frame);
  const bool attached = link.attach(0, std::move(sink.ends.ours), "host");
  REQUIRE(attached);
  epoll_event first{};
  REQUIRE(epoll_wait(epoll.get(), &first, 1, 5000) == 1);
  auto& connection = *static_cast<Connection*>(first.data.ptr);
  int turns_for_the_rest = 0;
  while (sink.taken + sink.frame.size() <= kAll) {
    const std::size_t before = sink.taken;
    const bool goes_on = connection.on_io(true, false);
    turns_for_the_rest += goes_on ? 1 : 0;
    REQUIRE(sink.taken > before);
    REQUIRE(sink.taken - before < kMostInATurn);
  }
  CHECK(turns_for_the_rest > 0);
}

TEST_CASE("Who has not finished goes on in the next turn, among the others, whoever drives", "[multi][transport]") {
  Unfinished handler;
  Progress progress(handler);
  watch(progress, handler.first);
  progress.wait([&] { return handler.turns == 1; });
  CHECK(is_ready(progress));  // for hvd-net, when nobody waits any more
  watch(progress, handler.second);
  CHECK(progress.try_drive());
  progress.wait([&] { return handler.turns == 4; });
  CHECK((handler.order == "abababa" || handler.order == "abababab" || handler.order == "ababababab"));
  REQUIRE(epoll_ctl(progress.epoll_fd(), EPOLL_CTL_DEL, handler.second.get(), nullptr) == 0);
  CHECK(progress.try_drive());  // takes the last sign away
  CHECK_FALSE(is_ready(progress));
}

TEST_CASE("A control link through TLS leaves the rest for the loop's next turn", "[multi][transport][tls]") {
  Ends ends;
  const Bytes frame = encode_control_frame(ControlFrameType::kMessage, Bytes(10'000));
  std::size_t taken = 0;
  const auto take = [&](ByteSpan message) {
    taken += message.size() + kControlHeaderSize;
    ends.fill(frame);
  };
  uv_loop_t loop;
  REQUIRE(uv_loop_init(&loop) == 0);
  {
    ControlLink link(&loop, std::move(ends.ours), {take, [](const Status& why) { FAIL(why.message()); }, [] {}});
    link.start();
    ends.fill(frame);
    while (taken + frame.size() <= kAll) {
      const std::size_t before = taken;
      uv_run(&loop, UV_RUN_ONCE);
      REQUIRE(taken - before < kMostInATurn);
    }
  }
  uv_run(&loop, UV_RUN_DEFAULT);
  REQUIRE(uv_loop_close(&loop) == 0);
}
