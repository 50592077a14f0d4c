// Ranks whose connections go through TLS, with somebody on the path.
#include <gloo/transport/unbound_buffer.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "runtime/base/socket_io.h"
#include "runtime/transport/net/sockets.h"
#include "test/runtime/transport/gloo_group.h"

using namespace hvd;
using test::FabricGroup;
using test::MapRowSource;

namespace {

constexpr std::size_t kCount = 50'000;
constexpr std::string_view kPayload = "a gradient that nobody else shall see. ";

// Forwards one connection, keeps what passed towards the acceptor, and can change or cut it.
class Wire {
 public:
  explicit Wire(const transport::SocketAddress& acceptor) : acceptor_(acceptor) {
    auto bound = transport::bind_listeners({{"lo", transport::SocketAddress::loopback(0), 8}}, {}).value();
    listener_ = std::move(bound.fds.front());
    address = bound.endpoints.front().address;
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ~Wire() {
    thread_.request_stop();
    wake_.cancel();
  }

  enum class Harm { kNone, kChangedByte, kCut };
  // To the next bytes that pass.
  void disturb(Harm harm) { harm_ = harm; }
  // After the connection has ended or the wire was cut.
  std::string seen() {
    thread_.request_stop();
    wake_.cancel();
    thread_.join();
    return seen_;
  }

  transport::SocketAddress address;

 private:
  void run(const std::stop_token& stop) {
    const Deadline deadline = Deadline::after(Millis(30000));
    if (!wait_for_socket(listener_.get(), POLLIN, deadline, wake_.fd()).is_ok()) return;
    const Fd connector(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    auto onwards = transport::connect_stream(acceptor_, deadline, wake_);
    if (!onwards.is_ok()) return;
    std::array<pollfd, 3> fds{
        {{connector.get(), POLLIN, 0}, {onwards.value().get(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}}};
    while (!stop.stop_requested() && poll(fds.data(), fds.size(), 30000) > 0) {
      if (fds[0].revents != 0 && !forward(fds[0].fd, fds[1].fd, true)) return;
      if (fds[1].revents != 0 && !forward(fds[1].fd, fds[0].fd, false)) return;
    }
  }

  bool forward(int from, int to, bool kept) {
    std::array<std::uint8_t, 65536> buffer;
    const ssize_t got = recv(from, buffer.data(), buffer.size(), 0);
    if (got <= 0) return false;
    const auto size = static_cast<std::size_t>(got);
    if (kept) {
      seen_.append(buffer.begin(), buffer.begin() + got);
      const Harm harm = harm_.exchange(Harm::kNone);
      if (harm == Harm::kChangedByte) buffer[size / 2] ^= 1U;
      if (harm == Harm::kCut) return false;
    }
    return send_all(to, ByteSpan(buffer.data(), size), Deadline::after(Millis(30000)), wake_.fd()).is_ok();
  }

  const transport::SocketAddress acceptor_;
  transport::ForkFd listener_;
  transport::Cancel wake_;
  std::atomic<Harm> harm_{Harm::kNone};
  std::string seen_;
  std::jthread thread_;
};

// Two ranks, of which the second reaches the first over a wire.
struct TwoOverAWire {
  explicit TwoOverAWire(bool tls) : group(2, 1, Millis(10000), tls) {
    auto row = transport::AddressRow::decode(group.fabrics[0]->address_row()).value();
    wire.emplace(row.endpoints.front().address);
    row.endpoints = {{wire->address, "lo"}};
    group.rows.set(0, row.encode());
    for (auto& fabric : group.fabrics) contexts.push_back(fabric->make_context(1, {0, 1}).value());
  }

  // Rank 1 sends so many bytes of the payload again and again; what each rank ran into.
  std::vector<std::string> send(std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += kPayload;
    std::string received(text.size(), ' ');
    auto errors = test::run_all({
        [&] {
          auto buffer = contexts[0]->createUnboundBuffer(received.data(), received.size());
          buffer->recv(1, 5);
          buffer->waitRecv();
        },
        [&] {
          auto buffer = contexts[1]->createUnboundBuffer(text.data(), text.size());
          buffer->send(0, 5);
          buffer->waitSend();
        },
    });
    if (errors[0].empty()) CHECK(received == text);
    return errors;
  }

  FabricGroup group;
  std::optional<Wire> wire;
  std::vector<std::shared_ptr<gloo::Context>> contexts;
};

}  // namespace

TEST_CASE("Nothing of a message can be read on the wire with TLS, and all of it without", "[multi][transport]") {
  for (const bool tls : {false, true}) {
    TwoOverAWire ranks(tls);
    CHECK(ranks.send(1000) == std::vector<std::string>{"", ""});
    CHECK(ranks.send(kCount * kPayload.size()) == std::vector<std::string>{"", ""});
    ranks.contexts.clear();
    ranks.group.fabrics.clear();
    const std::string seen = ranks.wire->seen();
    CHECK(seen.size() > kCount * kPayload.size());
    CHECK((seen.find(kPayload.substr(0, 12)) == std::string::npos) == tls);
  }
}

TEST_CASE("A byte that is changed on the wire, and a cut, end the connection with TLS", "[multi][transport]") {
  const std::vector<std::pair<Wire::Harm, std::string>> harms{
      {Wire::Harm::kChangedByte, "what came over TLS was changed on its way"}, {Wire::Harm::kCut, ""}};
  for (const auto& [harm, says] : harms) {
    TwoOverAWire ranks(true);
    REQUIRE(ranks.send(1000) == std::vector<std::string>{"", ""});
    ranks.wire->disturb(harm);
    const auto errors = ranks.send(200'000);
    CHECK_THAT(errors[0], Catch::Contains("lost rank 1") && Catch::Contains(says));
  }  // the sender may have been done before
}

TEST_CASE("A rank with TLS and one without refuse each other and both say so", "[multi][transport]") {
  for (const bool connector_has : {false, true}) {
    MapRowSource rows;
    std::vector<std::unique_ptr<transport::Fabric>> fabrics;
    for (const int rank : {0, 1}) {
      fabrics.push_back(transport::Fabric::create(
                            {.rank = rank, .size = 2, .tls = (rank == 1) == connector_has, .timeout = Millis(10000)})
                            .value());
      rows.set(rank, fabrics.back()->address_row());
    }
    for (auto& fabric : fabrics) REQUIRE(fabric->open(1, test::test_secret(), rows).is_ok());
    auto context = fabrics[1]->make_context(1, {0, 1}).value();
    float value = 0;
    auto buffer = context->createUnboundBuffer(&value, sizeof(value));
    CHECK_THROWS_WITH(buffer->send(0, 5), Catch::Contains("HOROVOD_TLS must be the same on all ranks"));
  }
}

TEST_CASE("The end of a rank is seen through TLS in the middle of a message", "[multi][transport]") {
  auto group = std::make_unique<FabricGroup>(3, 1, Millis(10000), true);
  std::vector<std::shared_ptr<gloo::Context>> contexts;
  for (auto& fabric : group->fabrics) contexts.push_back(fabric->make_context(1, {0, 1, 2}).value());
  std::vector<float> values(4U << 20U);
  const auto errors = test::run_all({
      [&] {  // more than the socket takes, to a rank that reads none of it and goes
        auto buffer = contexts[0]->createUnboundBuffer(values.data(), values.size() * sizeof(float));
        buffer->recv(1, 7);
        buffer->waitRecv();
        buffer->send(1, 8);
        buffer->waitSend();
      },
      [&] {
        auto hello = contexts[1]->createUnboundBuffer(values.data(), values.size() * sizeof(float));
        hello->send(0, 7);
        hello->waitSend();
        group->fabrics[1].reset();
      },
  });
  CHECK_THAT(errors[0], Catch::Contains("lost rank 1"));
  CHECK(errors[1].empty());
  contexts.clear();
}
