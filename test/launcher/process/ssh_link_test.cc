#include "launcher/process/ssh_link.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <utility>

#include "runtime/base/fd.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

// Two ends of a TCP connection over loopback, and where it came in.
struct Connected {
  Fd client;
  Fd server;
  Fd listener;
};

Connected connected() {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  Connected made{Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), Fd(), Fd()};
  REQUIRE(::connect(made.client.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  made.server = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(made.server.valid());
  made.listener = std::move(listener);
  return made;
}

std::string text_of(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  REQUIRE(name(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return std::string(::inet_ntoa(address.sin_addr)) + " " + std::to_string(ntohs(address.sin_port));
}

SshLink link_of(const Connected& ends) {
  return parse_ssh_link(text_of(ends.server.get(), ::getpeername) + " " + text_of(ends.server.get(), ::getsockname))
      .value();
}

}  // namespace

TEST_CASE("SSH_CONNECTION is read in both families", "[unit][process]") {
  const SshLink v4 = parse_ssh_link("10.0.0.1 50000 10.0.0.2 22").value();
  CHECK(reinterpret_cast<const sockaddr_in&>(v4.remote).sin_port == htons(50000));
  CHECK(reinterpret_cast<const sockaddr_in&>(v4.local).sin_port == htons(22));
  CHECK(parse_ssh_link("fd00::1 50000 fd00::2 22").value().local.ss_family == AF_INET6);
}

TEST_CASE("What is no SSH_CONNECTION is refused", "[unit][process]") {
  for (const char* text :
       {"", "10.0.0.1 50000 10.0.0.2", "10.0.0.1 50000 10.0.0.2 22 x", "a 50000 10.0.0.2 22", "10.0.0.1 0 10.0.0.2 22",
        "10.0.0.1 65536 10.0.0.2 22", "10.0.0.1 -1 10.0.0.2 22", "10.0.0.1 50000 fd00::2 22"}) {
    CHECK_FALSE(parse_ssh_link(text).is_ok());
  }
}

TEST_CASE("The kernel tells the state of a connection", "[unit][process]") {
  const Connected ends = connected();
  const auto state = link_state(link_of(ends));
  REQUIRE(state.is_ok());
  CHECK_FALSE(state.value().waiting_for_ack);
  CHECK(state.value().since_last_ack < std::chrono::minutes(1));
}

TEST_CASE("A connection that is gone is an error, though somebody still listens where it came in", "[unit][process]") {
  Connected ends = connected();
  const SshLink link = link_of(ends);
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  REQUIRE(::setsockopt(ends.server.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
  ends.server.reset();
  CHECK(link_state(link).status().code() == StatusCode::kPeerLost);
}

TEST_CASE("A connection that is not here is an error", "[unit][process]") {
  CHECK_FALSE(link_state(parse_ssh_link("192.0.2.1 50000 192.0.2.2 22").value()).is_ok());
}
