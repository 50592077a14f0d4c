#include "launcher/join/sealed_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "launcher/join/join_messages.h"
#include "runtime/loop/timer.h"

using namespace hvd;
using namespace hvd::launcher;
using Side = SealedLink::Side;

namespace {

std::pair<Fd, Fd> socket_pair() {
  int ends[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// One end, and what has happened to it.
struct End {
  End(MainLoop& loop, Fd fd, Side side, const crypto::Secret& token) {
    auto opened = SealedLink::open(loop, std::move(fd), side, token,
                                   {.on_proven = [this] { ++proven; },
                                    .on_record = [this](ByteSpan bytes) { text += as_text(bytes); },
                                    .on_end = [this](const std::string& reason) { why.push_back(reason); },
                                    .on_progress = {},
                                    .on_introduced = [this] { ++introduced; }});
    REQUIRE(opened.is_ok());
    link = std::move(opened).value();
  }
  std::unique_ptr<SealedLink> link;
  int introduced = 0;
  int proven = 0;
  std::string text;
  std::vector<std::string> why;
};

// Until the condition holds; false at the deadline.
bool run_until(MainLoop& loop, const std::function<bool()>& condition) {
  bool late = false;
  loop::Timer look(loop.get(), [&] {
    if (condition()) loop.stop();
  });
  loop::Timer deadline(loop.get(), [&] {
    late = true;
    loop.stop();
  });
  look.start_repeating(Millis(1));
  deadline.start(Millis(20000));
  loop.run();
  return !late;
}

}  // namespace

TEST_CASE("two ends with one token prove it and talk; a close is the other's end", "[unit][join]") {
  MainLoop loop;
  const crypto::Secret token = crypto::Secret::random();
  auto [a, b] = socket_pair();
  End launcher(loop, std::move(a), Side::kLauncher, token);
  End host(loop, std::move(b), Side::kHost, token);
  REQUIRE(run_until(loop, [&] { return host.proven == 1; }));
  CHECK(launcher.introduced == 1);
  CHECK(launcher.proven == 0);  // the host has sealed nothing yet
  const std::string much(300000, 'x');
  host.link->write(as_bytes("I am n01"));
  launcher.link->write(as_bytes(much));
  REQUIRE(run_until(loop, [&] { return host.text == much && launcher.text == "I am n01"; }));
  CHECK(launcher.proven == 1);
  CHECK(launcher.link->end().empty());
  host.link->write(as_bytes(", good bye"));
  host.link->close_when_written();
  REQUIRE(run_until(loop, [&] { return !launcher.why.empty(); }));
  CHECK(launcher.text == "I am n01, good bye");
  CHECK(launcher.link->end() == "the other end has closed the connection");
  CHECK(host.why.empty());
}

TEST_CASE("an end with another token is found out before it has said anything", "[unit][join]") {
  MainLoop loop;
  auto [a, b] = socket_pair();
  End launcher(loop, std::move(a), Side::kLauncher, crypto::Secret::random());
  End host(loop, std::move(b), Side::kHost, crypto::Secret::random());
  REQUIRE(run_until(loop, [&] { return !launcher.why.empty() && !host.why.empty(); }));
  CHECK(host.link->has_other_token());
  CHECK(host.proven + launcher.proven == 0);
  CHECK(launcher.introduced == 0);
  CHECK(launcher.link->has_other_token());
  CHECK(launcher.link->greeted());
}

TEST_CASE("what is no greeting, and what was recorded, ends a connection", "[unit][join]") {
  MainLoop loop;
  const crypto::Secret token = crypto::Secret::random();
  SECTION("strange bytes") {
    auto [a, b] = socket_pair();
    End launcher(loop, std::move(a), Side::kLauncher, token);
    REQUIRE(::write(b.get(), "GET / HTTP/1.1\r\n", 16) == 16);
    REQUIRE(run_until(loop, [&] { return !launcher.why.empty(); }));
    CHECK(launcher.why == std::vector<std::string>{"what came is not the greeting of a horovodrun"});
    CHECK_FALSE(launcher.link->greeted());
  }
  SECTION("a recording of all that a host has sent") {
    std::string recording;
    {
      auto [a, tap_of_launcher] = socket_pair();
      auto [b, tap_of_host] = socket_pair();
      End launcher(loop, std::move(a), Side::kLauncher, token);
      End host(loop, std::move(b), Side::kHost, token);
      // The wire between the two, which somebody taps.
      const auto carry = [](const Fd& from, const Fd& to, std::string* record) {
        char chunk[4096];
        const ssize_t size = ::read(from.get(), chunk, sizeof(chunk));
        if (size <= 0) return;
        if (record != nullptr) record->append(chunk, static_cast<std::size_t>(size));
        REQUIRE(::write(to.get(), chunk, static_cast<std::size_t>(size)) == size);
      };
      bool asked = false;
      REQUIRE(run_until(loop, [&, &of_host = tap_of_host, &of_launcher = tap_of_launcher] {
        carry(of_host, of_launcher, &recording);
        carry(of_launcher, of_host, nullptr);
        if (host.proven == 1 && !std::exchange(asked, true)) host.link->write(as_bytes("let me in"));
        return launcher.text == "let me in";
      }));
    }
    auto [a, b] = socket_pair();
    End launcher(loop, std::move(a), Side::kLauncher, token);
    REQUIRE(::write(b.get(), recording.data(), recording.size()) == static_cast<ssize_t>(recording.size()));
    REQUIRE(run_until(loop, [&] { return !launcher.why.empty(); }));
    CHECK(launcher.introduced == 1);
    CHECK(launcher.proven == 0);
    CHECK(launcher.text.empty());
  }
}
