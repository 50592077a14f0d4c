#include "runtime/base/socket_io.h"

#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>

#include "runtime/base/fd.h"

using namespace hvd;

namespace {

struct Pair {
  Fd one;
  Fd other;
  Pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    one = Fd(ends[0]);
    other = Fd(ends[1]);
  }
};

Deadline soon() { return Deadline::after(Millis(1)); }
Deadline late() { return Deadline::after(Millis(20000)); }

}  // namespace

TEST_CASE("Sockets give what has come, wait for the rest, and tell the end from the deadline", "[unit][base]") {
  const Pair pair;
  std::array<std::uint8_t, 4> into{};
  CHECK(receive_some(pair.other.get(), into, soon(), -1).status().code() == StatusCode::kTimeout);
  REQUIRE(send_all(pair.one.get(), as_bytes("abc"), late(), -1).is_ok());
  CHECK(receive_some(pair.other.get(), into, late(), -1).value() == 3);
  REQUIRE(send_all(pair.one.get(), as_bytes("abc"), late(), -1).is_ok());
  CHECK(receive_exactly(pair.other.get(), std::span(into).first(2), late(), -1).is_ok());
  CHECK(receive_exactly(pair.other.get(), into, soon(), -1).code() == StatusCode::kTimeout);
  ::shutdown(pair.one.get(), SHUT_WR);
  const Status end = receive_exactly(pair.other.get(), into, late(), -1);
  CHECK(end.code() == StatusCode::kPeerLost);
  CHECK(end.message() == "connection closed by the other end");
}

TEST_CASE("A wait on a socket ends when it is woken, with bytes there or not", "[unit][base]") {
  const Pair pair;
  const Pair wake;
  std::array<std::uint8_t, 4> into{};
  REQUIRE(send_all(wake.one.get(), as_bytes("x"), late(), -1).is_ok());
  CHECK(receive_some(pair.other.get(), into, late(), wake.other.get()).status().code() == StatusCode::kAborted);
  REQUIRE(send_all(pair.one.get(), as_bytes("abc"), late(), -1).is_ok());
  CHECK(receive_some(pair.other.get(), into, late(), wake.other.get()).status().code() == StatusCode::kAborted);
  const Bytes more(std::size_t{8} << 20);  // than the socket takes
  CHECK(send_all(pair.one.get(), more, late(), wake.other.get()).code() == StatusCode::kAborted);
  CHECK(send_all(pair.one.get(), more, soon(), -1).code() == StatusCode::kTimeout);
}

TEST_CASE("A pause ends with its time, with the deadline, and when it is woken", "[unit][base]") {
  const Pair wake;
  CHECK(pause_for(Millis(1), late(), wake.other.get()).is_ok());
  CHECK(pause_for(Millis(60'000), soon(), -1).is_ok());
  REQUIRE(send_all(wake.one.get(), as_bytes("x"), late(), -1).is_ok());
  CHECK(pause_for(Millis(60'000), late(), wake.other.get()).code() == StatusCode::kAborted);
}

TEST_CASE("What a socket says about its peer is a loss, what it says about us is not", "[unit][base]") {
  Pair pair;
  pair.other.reset();
  CHECK(send_all(pair.one.get(), as_bytes("x"), late(), -1).code() == StatusCode::kPeerLost);
  CHECK(send_all(-1, as_bytes("x"), late(), -1).code() == StatusCode::kInternal);
  const Fd bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // holds the port, and listens on it never
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Status refused = connect_socket(fd.get(), reinterpret_cast<const sockaddr*>(&address), size, late(), -1);
  CHECK(refused.code() == StatusCode::kPeerLost);
  CHECK(refused.message() == "connection refused");
}
