#include "launcher/agent/secret_socket.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <future>
#include <set>

#include "launcher/process/main_loop.h"
#include "rendezvous/client/agent_client.h"
#include "rendezvous/protocol/agent_socket.h"
#include "runtime/base/bytes.h"
#include "runtime/base/socket_io.h"
#include "runtime/loop/timer.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

// Connects as a rank would; blocking, so it runs beside the loop.
Fd connect_to(const std::string& name) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const AbstractAddress address(name);
  if (::connect(fd.get(), address.get(), address.size()) != 0) return Fd();
  return fd;
}

// All that the agent answers to these bytes, until it closes.
std::string ask(const std::string& name, const std::string& request) {
  const Fd fd = connect_to(name);
  if (!fd.valid() || !write_all(fd.get(), request.data(), request.size()).is_ok()) return "cannot talk";
  std::string answer;
  char buffer[256];
  for (ssize_t n = 0; (n = ::read(fd.get(), buffer, sizeof(buffer))) > 0;)
    answer.append(buffer, static_cast<std::size_t>(n));
  return answer;
}

// Serves while `client` runs on another thread.
template <typename F>
auto serve(MainLoop& loop, F client) {
  auto result = std::async(std::launch::async, client);
  loop::Timer poll(loop.get(), [&] { loop.stop(); });
  while (result.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    poll.start(Millis(5));
    loop.run();
  }
  return result.get();
}

// A process of another user with connections to the socket; made by root only.
class OtherUser {
 public:
  OtherUser(const std::string& name, int connections) {
    int ends[2] = {};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      live(name, connections, ends[1]);
    }
    ::close(ends[1]);
    talk_ = Fd(ends[0]);
    REQUIRE(answer() == 0);  // all are in the backlog
  }
  ~OtherUser() {
    talk_.reset();
    ::waitpid(pid_, nullptr, 0);
  }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;

  // How many of its connections have been closed by the other end.
  int turned_away() {
    REQUIRE(::write(talk_.get(), "?", 1) == 1);
    return answer();
  }

 private:
  int answer() {
    int value = -1;
    REQUIRE(::read(talk_.get(), &value, sizeof(value)) == sizeof(value));
    return value;
  }

  [[noreturn]] static void live(const std::string& name, int connections, int talk) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    std::vector<Fd> all;
    for (int i = 0; i < connections; ++i) all.push_back(connect_to(name));
    char question = 0;
    do {
      int closed = 0;
      for (const Fd& fd : all) {
        if (::recv(fd.get(), &question, 1, MSG_DONTWAIT) == 0) ++closed;
      }
      if (::write(talk, &closed, sizeof(closed)) != sizeof(closed)) ::_exit(1);
    } while (::read(talk, &question, 1) == 1);
    ::_exit(0);
  }

  pid_t pid_ = -1;
  Fd talk_;
};

std::string request(char kind) { return std::string(rendezvous::kAgentMagic) + kind + std::string(4, '\0'); }

const std::string kRequest = request(rendezvous::kAgentRequestCredentials);
const rendezvous::Incarnation kProcess{.slot = 5, .number = 3};

Result<std::unique_ptr<SecretSocket>> open_socket(MainLoop& loop) {
  return SecretSocket::open(loop, crypto::Secret::random(), kProcess, [](auto...) { return true; }, nullptr);
}

}  // namespace

TEST_CASE("SecretSocket tells its process who it is, with the secret, as often as it is asked", "[agent]") {
  MainLoop loop;
  const crypto::Secret secret = crypto::Secret::random();
  auto socket = SecretSocket::open(loop, secret, kProcess, [](auto...) { return true; }, nullptr).value();
  REQUIRE(rendezvous::is_agent_socket_name(socket->name()));
  const auto token = rendezvous::seat_token(secret, kProcess);
  const std::string expected = std::string(rendezvous::kAgentMagic) + '\0' + std::string("\5\0\0\0\3\0\0\0", 8) +
                               std::string(as_text(token)) + std::string(as_text(secret.bytes()));
  for (int i = 0; i < 3; ++i) {
    CHECK(serve(loop, [&] { return ask(socket->name(), kRequest); }) == expected);
  }
  const auto got = serve(
      loop, [&] { return rendezvous::fetch_credentials(socket->name(), Deadline::after(std::chrono::seconds(5))); });
  REQUIRE(got.is_ok());
  CHECK(got.value().seat.process == kProcess);
  CHECK(got.value().seat.token == token);
  CHECK(to_hex(got.value().secret.bytes()) == to_hex(secret.bytes()));
}

TEST_CASE("SecretSocket answers nothing to anything else", "[agent]") {
  MainLoop loop;
  auto socket = open_socket(loop).value();
  CHECK(serve(loop, [&] { return ask(socket->name(), request(6)); }).empty());
  CHECK(serve(loop, [&] { return ask(socket->name(), std::string("HVDAGNT1\x01\0\0\0\0", 13)); }).empty());
  CHECK(serve(loop, [&] { return ask(socket->name(), "GET / HTTP/1.1"); }).empty());
}

TEST_CASE("SecretSocket serves others while many clients say nothing", "[agent]") {
  MainLoop loop;
  auto socket = open_socket(loop).value();
  std::vector<Fd> silent;
  for (std::size_t i = 0; i + 1 < SecretSocket::kMaxClients; ++i) silent.push_back(connect_to(socket->name()));
  CHECK(serve(loop, [&] { return ask(socket->name(), kRequest); }).size() == rendezvous::kAgentAnswerBytes);
}

TEST_CASE("SecretSocket drops clients that say nothing within the deadline", "[agent]") {
  MainLoop loop;
  auto socket = open_socket(loop).value();
  std::vector<Fd> silent;
  for (std::size_t i = 0; i < SecretSocket::kMaxClients; ++i) silent.push_back(connect_to(socket->name()));
  // All places are taken: this one is served only when they have been freed.
  CHECK(serve(loop, [&] { return ask(socket->name(), kRequest); }).size() == rendezvous::kAgentAnswerBytes);
}

TEST_CASE("SecretSocket turns a crowd of another user away a few at a time, and serves its own user meanwhile",
          "[agent]") {
  if (::geteuid() != 0) {
    WARN("needs root to be another user");
    return;
  }
  MainLoop loop;
  auto socket = open_socket(loop).value();
  constexpr int kCrowd = 6 * SecretSocket::kAcceptsPerTurn;
  OtherUser crowd(socket->name(), kCrowd);
  for (int turn = 1; turn <= 3; ++turn) {
    uv_run(loop.get(), UV_RUN_NOWAIT);
    CHECK(crowd.turned_away() == turn * SecretSocket::kAcceptsPerTurn);
  }
  CHECK(serve(loop, [&] { return ask(socket->name(), kRequest); }).size() == rendezvous::kAgentAnswerBytes);
  CHECK(crowd.turned_away() == kCrowd);
}

TEST_CASE("SecretSocket does not spin while the process is out of descriptors, and serves afterwards", "[agent]") {
  MainLoop loop;
  auto socket = open_socket(loop).value();
  const Fd waiting = connect_to(socket->name());
  REQUIRE(write_all(waiting.get(), kRequest.data(), kRequest.size()).is_ok());
  loop::Timer stop(loop.get(), [&] { loop.stop(); });
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::dup(waiting.get());  // the lowest free number: no descriptor can be made from here on
  ::close(next);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const std::clock_t start = std::clock();
  stop.start(Millis(200));
  loop.run();
  const double busy = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(busy < 0.1);
  const auto answer = serve(loop, [&] {
    std::array<char, rendezvous::kAgentAnswerBytes> bytes{};
    return ::recv(waiting.get(), bytes.data(), bytes.size(), MSG_WAITALL);
  });
  CHECK(answer == static_cast<ssize_t>(rendezvous::kAgentAnswerBytes));
}

TEST_CASE("SecretSocket names are random", "[agent]") {
  MainLoop loop;
  const crypto::Secret secret = crypto::Secret::random();
  std::set<std::string> names;
  for (int i = 0; i < 10; ++i)
    names.insert(SecretSocket::open(loop, secret, kProcess, [](auto...) { return true; }, nullptr).value()->name());
  CHECK(names.size() == 10);
}

TEST_CASE("SecretSocket hears that its process fails, leaves or waits, and answers yes or no without the secret",
          "[agent]") {
  MainLoop loop;
  using rendezvous::AgentNotice;
  std::vector<AgentNotice> heard;
  std::int32_t named = 0;
  const auto hear = [&](AgentNotice kind, std::int32_t rank) {
    heard.push_back(kind);
    named = rank;
    return kind != AgentNotice::kDraining;
  };
  auto socket = SecretSocket::open(loop, crypto::Secret::random(), kProcess, hear, nullptr).value();
  CHECK(serve(loop, [&] { return ask(socket->name(), request(2)); }) == std::string(rendezvous::kAgentMagic) + '\0');
  CHECK(heard == std::vector{AgentNotice::kFailing});
  const auto told = serve(loop, [&] {
    return rendezvous::notify_agent(socket->name(), AgentNotice::kLeaving, Deadline::after(std::chrono::seconds(5)));
  });
  CHECK(told.is_ok());
  CHECK(heard.back() == AgentNotice::kLeaving);
  const auto refused = serve(loop, [&] {
    return rendezvous::notify_agent(socket->name(), AgentNotice::kDraining, Deadline::after(std::chrono::seconds(5)));
  });
  CHECK(refused.message() == "the agent says no, outcome 1");
  CHECK(named == 0);
  // Who reports a stall does not wait for the answer.
  REQUIRE(rendezvous::report_stall(socket->name(), 70000).is_ok());
  while (heard.back() != AgentNotice::kStalled) uv_run(loop.get(), UV_RUN_ONCE);
  CHECK(named == 70000);
}

TEST_CASE("SecretSocket hears what its process did, also in pieces", "[agent]") {
  MainLoop loop;
  std::vector<rendezvous::RankWork> heard;
  auto socket = SecretSocket::open(
                    loop, crypto::Secret::random(), kProcess, [](auto...) { return true; },
                    [&](const rendezvous::RankWork& work) { heard.push_back(work); })
                    .value();
  const rendezvous::RankWork work{.collectives = 3, .bytes = std::uint64_t{1} << 40, .waited_us = 7, .session_us = 8};
  const auto told = serve(
      loop, [&] { return rendezvous::report_work(socket->name(), work, Deadline::after(std::chrono::seconds(5))); });
  CHECK(told.is_ok());
  CHECK(heard == std::vector{work});
  // Without the numbers it is no report: the agent waits for them, and lets go when the other end does.
  CHECK(serve(loop, [&] { return ask(socket->name(), request(rendezvous::kAgentRequestWork)); }).empty());
  CHECK(heard.size() == 1);
}
