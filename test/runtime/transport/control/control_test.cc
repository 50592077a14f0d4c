#include <future>

#include "runtime/loop/loop.h"
#include "runtime/transport/control/control_links.h"
#include "test/runtime/transport/fabric_group.h"
#include "test/support/soonest.h"

using namespace hvd;
using namespace hvd::transport;
using test::FabricGroup;

namespace {

constexpr Millis kConnectLimit{20000};

// What a rank's engine would do: a loop, and the links on it.
class Node final : public ControlHandler {
 public:
  explicit Node(Fabric& fabric) : fabric_(fabric) {}
  ~Node() override {
    on_loop([this] { links_.reset(); });
  }

  Status connect(int parent, std::vector<int> children, Millis limit = kConnectLimit) {
    auto links = fabric_.connect_control(
        loop_.uv(), [this](std::function<void()> fn) { loop_.post(std::move(fn)); }, parent, children, *this,
        Deadline::after(limit));
    if (!links.is_ok()) return links.status();
    links_ = std::move(links).value();
    return Status::ok();
  }
  void send(int to, std::string_view text) {
    Bytes message(text.begin(), text.end());
    on_loop([&] { links_->send(to, message); });
  }
  void close() {
    std::promise<void> closed;
    loop_.post([&] { links_->close([&] { closed.set_value(); }); });
    closed.get_future().get();
  }
  // The next event, as "rank:text" or "rank lost: why".
  std::string next(Millis limit = kConnectLimit) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [&] { return !events_.empty(); })) return "nothing";
    std::string event = events_.front();
    events_.erase(events_.begin());
    return event;
  }

  void on_control_message(int from, ByteSpan message) override {
    HVD_CHECK(loop_.in_loop(), "off the loop");
    record(std::to_string(from) + ":" + std::string(as_text(message)));
  }
  void on_control_lost(int rank, const Status& why) override {
    HVD_CHECK(why.code() == StatusCode::kPeerLost, "not lost");
    record(std::to_string(rank) + " lost: " + why.message());
  }

 private:
  void on_loop(std::function<void()> fn) {
    std::promise<void> done;
    loop_.post([&] {
      fn();
      done.set_value();
    });
    done.get_future().get();
  }
  void record(std::string event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

  Fabric& fabric_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
  std::unique_ptr<ControlLinks> links_;
  loop::Loop loop_{"test-engine"};
};

struct Pair {
  Pair() : parent(*group.fabrics[0]), child(*group.fabrics[1]) {
    test::run_ranks(2, [&](int rank) {
      const Status status = rank == 0 ? parent.connect(-1, {1}) : child.connect(0, {});
      if (!status.is_ok()) throw std::runtime_error(status.message());
    });
  }
  FabricGroup group{2};
  Node parent;
  Node child;
};

}  // namespace

TEST_CASE("Control messages arrive whole, in order, both ways", "[multi][transport]") {
  Pair pair;
  const std::string large(5U << 20U, 'x');
  pair.parent.send(1, "first");
  pair.parent.send(1, large);
  pair.parent.send(1, "");
  pair.child.send(0, "up");
  CHECK(pair.child.next() == "0:first");
  CHECK(pair.child.next() == "0:" + large);
  CHECK(pair.child.next() == "0:");
  CHECK(pair.parent.next() == "1:up");
}

TEST_CASE("A tree of control connections comes up whoever is first", "[multi][transport]") {
  FabricGroup group(7);
  std::vector<std::unique_ptr<Node>> nodes;
  for (auto& fabric : group.fabrics) nodes.push_back(std::make_unique<Node>(*fabric));
  std::vector<Status> statuses(7);
  test::run_ranks(7, [&](int rank) {
    std::vector<int> children;
    for (int child = 2 * rank + 1; child <= 2 * rank + 2 && child < 7; ++child) children.push_back(child);
    statuses[static_cast<std::size_t>(rank)] =
        nodes[static_cast<std::size_t>(rank)]->connect(rank == 0 ? -1 : (rank - 1) / 2, children);
  });
  for (const Status& status : statuses) CHECK(status.to_string() == "ok");
  nodes[2]->send(6, "down");
  CHECK(nodes[6]->next() == "2:down");
}

TEST_CASE("A control connection that ends without a goodbye is reported once with its rank", "[multi][transport]") {
  FabricGroup group(2);
  Node parent(*group.fabrics[0]);
  {
    Node child(*group.fabrics[1]);
    Status connected;
    std::jthread connecting([&] { connected = child.connect(0, {}); });
    REQUIRE(parent.connect(-1, {1}).is_ok());
    connecting.join();
    REQUIRE(connected.is_ok());
    child.send(0, "last words");
    CHECK(parent.next() == "1:last words");
    CHECK(parent.next(Millis(50)) == "nothing");
  }  // as when its process dies: the socket goes without a word
  const std::string event = parent.next(Millis(1000));
  CHECK(event.find("1 lost: host ") == 0);
  CHECK(parent.next(Millis(50)) == "nothing");
}

TEST_CASE("After a goodbye the end of a control connection is no loss", "[multi][transport]") {
  const Millis took = test::soonest(transport::ControlLinkSet::kCloseLimit, [] {
    Pair pair;
    pair.child.send(0, "done");
    pair.child.close();
    CHECK(pair.parent.next() == "1:done");
    CHECK(pair.parent.next(Millis(50)) == "nothing");
    pair.parent.send(1, "too late, dropped");
    const auto start = SteadyClock::now();
    pair.parent.close();
    return SteadyClock::now() - start;
  });
  CHECK(took < transport::ControlLinkSet::kCloseLimit);
}

TEST_CASE("Closing both ends at once is quick and silent", "[multi][transport]") {
  const Millis took = test::soonest(transport::ControlLinkSet::kCloseLimit, [] {
    Pair pair;
    const auto start = SteadyClock::now();
    test::run_ranks(2, [&](int rank) { (rank == 0 ? pair.parent : pair.child).close(); });
    const auto span = SteadyClock::now() - start;
    CHECK(pair.parent.next(Millis(50)) == "nothing");
    CHECK(pair.child.next(Millis(50)) == "nothing");
    return span;
  });
  CHECK(took < transport::ControlLinkSet::kCloseLimit);
}

TEST_CASE("A missing child is named when the deadline passes", "[multi][transport]") {
  const std::string wanted = "control connections: rank 2 did not connect in time";
  Status root_status;
  Status child_status;
  // A busy machine may let the other child come later than that: then it has more time.
  for (Millis limit(300); root_status.message() != wanted && limit < Millis(30000); limit *= 4) {
    FabricGroup group(3);
    Node root(*group.fabrics[0]);
    Node child(*group.fabrics[1]);
    std::jthread other([&] { child_status = child.connect(0, {}); });
    root_status = root.connect(-1, std::vector<int>{1, 2}, limit);
    group.fabrics[1]->abort(Status::aborted("too late"));
    other.join();
  }
  CHECK(child_status.is_ok());
  CHECK(root_status.code() == StatusCode::kTimeout);
  CHECK(root_status.message() == wanted);
}

TEST_CASE("A connector waits for a peer that opens late", "[multi][transport]") {
  test::ClosedFabrics group(2);
  REQUIRE(group.fabrics[1]->open(4, test::test_secret(), group.rows).is_ok());
  Node parent(*group.fabrics[0]);
  Node child(*group.fabrics[1]);
  Status status;
  std::jthread connecting([&] { status = child.connect(0, {}); });
  std::this_thread::sleep_for(Millis(100));  // long enough for the hello to wait at the closed door
  REQUIRE(group.fabrics[0]->open(4, test::test_secret(), group.rows).is_ok());
  CHECK(parent.connect(-1, {1}).is_ok());
  connecting.join();
  CHECK(status.is_ok());
}

TEST_CASE("A rank with another secret or epoch is refused at once and in words", "[multi][transport]") {
  test::ClosedFabrics group(2);
  REQUIRE(group.fabrics[0]->open(1, test::test_secret(), group.rows).is_ok());
  Node child(*group.fabrics[1]);
  const auto start = SteadyClock::now();
  SECTION("secret") {
    REQUIRE(group.fabrics[1]->open(1, test::test_secret(8), group.rows).is_ok());
    const Status status = child.connect(0, {});
    CHECK(status.code() == StatusCode::kPrecondition);
    CHECK(status.message().find("cannot connect to rank 0 on host ") != std::string::npos);
    CHECK(status.message().find("does not hold the secret") != std::string::npos);
  }
  SECTION("epoch") {
    REQUIRE(group.fabrics[1]->open(2, test::test_secret(), group.rows).is_ok());
    const Status status = child.connect(0, {});
    CHECK(status.code() == StatusCode::kPrecondition);
    CHECK(status.message().find("another epoch") != std::string::npos);
  }
  CHECK(SteadyClock::now() - start < kConnectLimit / 2);
}

TEST_CASE("Connecting to a rank that is gone fails soon and names the address", "[multi][transport]") {
  FabricGroup group(2);
  group.fabrics[0].reset();
  Node child(*group.fabrics[1]);
  const auto start = SteadyClock::now();
  const Status status = child.connect(0, {});
  CHECK(status.code() == StatusCode::kPeerLost);
  CHECK(status.message().find("127.0.0.1:") != std::string::npos);
  CHECK(status.message().find("refused") != std::string::npos);
  CHECK(SteadyClock::now() - start < kConnectLimit / 2);
}

TEST_CASE("An abort ends connect_control", "[multi][transport]") {
  FabricGroup group(2);
  Node root(*group.fabrics[0]);
  Status status;
  std::jthread waiting([&] { status = root.connect(-1, {1}, Millis(20000)); });
  std::this_thread::sleep_for(Millis(20));
  const auto start = SteadyClock::now();
  group.fabrics[0]->abort(Status::aborted("test"));
  waiting.join();
  CHECK(status.code() == StatusCode::kAborted);
  CHECK(SteadyClock::now() - start < Millis(10000));
}
