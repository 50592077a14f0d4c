#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "rendezvous/client/client.h"
#include "rendezvous/protocol/limits.h"
#include "rendezvous/server/server.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/fd.h"
#include "test/rendezvous/support/job.h"
#include "test/rendezvous/support/tampering_proxy.h"

using namespace hvd;
using namespace hvd::rendezvous;

namespace {

// A bound socket on loopback. Until it listens, connecting to it is refused; nobody else can get
// the port.
struct ReservedPort {
  ReservedPort() : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
  }
  Fd fd;
  std::uint16_t port = 0;
};

}  // namespace

TEST_CASE(
    "A server that is not there is tried until the deadline; the error says host, port, path and "
    "cause",
    "[multi][rendezvous]") {
  const ReservedPort nobody;
  Client client({.host = "127.0.0.1", .port = nobody.port, .secret = crypto::Secret::random()});
  const TimePoint start = SteadyClock::now();
  const Status error = client.join({}, {}, {}, Deadline::after(Millis(400))).status();
  const auto took = SteadyClock::now() - start;
  CHECK(took >= Millis(390));
  CHECK(took < kSoon);
  CHECK(error.code() == StatusCode::kTimeout);
  const std::string what = "rendezvous 127.0.0.1:" + std::to_string(nobody.port) + " /v1/join: connection refused";
  // Longer than the deadline on a machine that comes back to it late.
  CHECK_THAT(error.message(), Catch::StartsWith(what) && Catch::Matches(R"(.* \(tried for [0-9]+\.[0-9] s\))"));
}

TEST_CASE("A listener that never answers ends the call at its deadline", "[multi][rendezvous]") {
  const ReservedPort silent;
  REQUIRE(listen(silent.fd.get(), 4) == 0);
  Client client({.host = "127.0.0.1", .port = silent.port, .secret = crypto::Secret::random()});
  const TimePoint start = SteadyClock::now();
  const Status error = client.put("s", "k", {}, Deadline::after(Millis(300)));
  CHECK(SteadyClock::now() - start < kSoon);
  CHECK(error.code() == StatusCode::kTimeout);
  CHECK_THAT(error.message(), Catch::Contains("no answer in time"));
}

TEST_CASE("A connection that breaks is made again and the call succeeds", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto server =
      Server::start({.secret = secret, .plan = StaticPlan::of_size(2), .listen_addresses = {"127.0.0.1"}}).value();
  // The third message to the client (after the session and one answer) is lost with its connection,
  // on the first connection.
  std::atomic<int> cut{0};
  test::TamperingProxy proxy(server->port(), [&](auto direction, int index, Bytes& piece) {
    if (direction == test::TamperingProxy::Direction::kToClient && index == 2 && cut++ == 0)
      piece.resize(piece.size() / 2);
  });
  Client client({.host = "127.0.0.1", .port = proxy.port(), .secret = secret});
  CHECK(client.put("s", "a", as_bytes("1"), Deadline::after(Millis(5000))).is_ok());
  // The answer is cut; the client waits for its rest until its deadline, and says so.
  CHECK(client.put("s", "b", as_bytes("2"), Deadline::after(Millis(300))).code() == StatusCode::kTimeout);
  CHECK(client.put("s", "b", as_bytes("2"), Deadline::after(Millis(5000))).is_ok());
}

TEST_CASE("A session may be silent for longer than any deadline", "[multi][rendezvous][slow]") {
  const auto secret = crypto::Secret::random();
  const auto server =
      Server::start({.secret = secret, .plan = StaticPlan::of_size(2), .listen_addresses = {"127.0.0.1"}}).value();
  Client client({.host = "127.0.0.1", .port = server->port(), .secret = secret});
  REQUIRE(client.put("s", "a", as_bytes("1"), Deadline::after(Millis(5000))).is_ok());
  std::this_thread::sleep_for(kHeadDeadline + Millis(500));  // the silence is what is tested
  CHECK(client.put("s", "b", as_bytes("1"), Deadline::after(Millis(5000))).is_ok());
  CHECK(server->stats().connections == 1);
  CHECK(server->stats().late == 0);
}

TEST_CASE("A session that the server closed for its silence is opened again without an error or a wait",
          "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto server = Server::start({.secret = secret,
                                     .plan = StaticPlan::of_size(2),
                                     .listen_addresses = {"127.0.0.1"},
                                     .idle_deadline = Millis(50)})
                          .value();
  Client client({.host = "127.0.0.1", .port = server->port(), .secret = secret});
  REQUIRE(client.put("s", "a", as_bytes("1"), Deadline::after(Millis(5000))).is_ok());
  const auto sessions = server->stats().sessions;
  const Deadline deadline = test::soon();
  do {                                         // again where the server did not get to it
    std::this_thread::sleep_for(Millis(300));  // the silence is what is tested
    CHECK(client.put("s", "b", as_bytes("1"), Deadline::after(Millis(5000))).is_ok());
  } while (server->stats().sessions == sessions && !deadline.expired());
  CHECK(server->stats().sessions > sessions);
  CHECK(server->stats().late == 0);
}

TEST_CASE("A connection that ends under a request is made again at once", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto server =
      Server::start({.secret = secret, .plan = StaticPlan::of_size(2), .listen_addresses = {"127.0.0.1"}}).value();
  std::atomic<int> requests{0};
  test::TamperingProxy proxy(server->port(), [&](auto direction, int index, Bytes& piece) {
    // The third request of the first connection never arrives.
    if (direction == test::TamperingProxy::Direction::kToServer && index == 2 && requests++ == 0) piece.clear();
  });
  Client client({.host = "127.0.0.1", .port = proxy.port(), .secret = secret});
  for (const char* key : {"a", "b", "c", "d"}) {
    CHECK(client.put("s", key, as_bytes("1"), Deadline::after(Millis(5000))).is_ok());
  }
  CHECK(requests == 2);
  CHECK(server->stats().sessions == 2);
}

TEST_CASE("Bad addresses are refused with what was expected", "[multi][rendezvous]") {
  const auto put = [](const std::string& host, std::uint16_t port) {
    Client client({.host = host, .port = port, .secret = crypto::Secret::random()});
    return client.put("s", "k", {}, Deadline::after(Millis(100)));
  };
  for (const std::string host : {"", "a b", "host\r\nX: y", "http://host/"}) {
    CHECK(put(host, 1).code() == StatusCode::kInvalidArgument);
    CHECK_THAT(put(host, 1).message(), Catch::Contains("neither the name nor the numeric address"));
  }
  CHECK_THAT(put("127.0.0.1", 0).message(), Catch::Contains("port is 0"));
}

TEST_CASE("A send that fails is tried again at once, also where no end of the connection is seen",
          "[multi][rendezvous]") {
  for (const int at : {1, 2, 3}) {
    test::Job job(1);
    Client client = job.client();
    REQUIRE(failpoint::arm("socket.send=ECONNRESET@" + std::to_string(at)).is_ok());
    const TimePoint start = SteadyClock::now();
    const Status first = client.put("s", "a", as_bytes("1"), test::soon());
    const Status second = client.put("s", "b", as_bytes("2"), test::soon());
    const auto took = SteadyClock::now() - start;
    REQUIRE(failpoint::arm("").is_ok());
    CHECK(first.to_string() == "ok");
    CHECK(second.to_string() == "ok");
    CHECK(took < test::kSoon / 2);
  }
}
