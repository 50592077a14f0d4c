// Who gets the memory of a host, and what all ranks come to.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <future>

#include "runtime/base/bytes.h"
#include "runtime/base/socket_io.h"
#include "runtime/collectives/shm/hand_over.h"
#include "runtime/crypto/hash.h"
#include "test/support/other_user.h"

namespace hvd::collectives {
namespace {

constexpr Millis kPatience{20000};

crypto::Secret key_of(std::uint8_t job) { return crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, job)).value(); }

HandOverOptions options_of(int rank, std::vector<int> ranks, std::uint8_t job = 1, Millis patience = kPatience) {
  return {rank, std::move(ranks), key_of(job), Deadline::after(patience)};
}

Fd connect_to(const std::string& name) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress address(name);
  REQUIRE(connect_socket(fd.get(), address.get(), address.size(), Deadline::after(kPatience), -1).is_ok());
  return fd;
}

// What each of these ranks came to.
std::vector<Result<SharedMemory>> share(const HandOverSocket& socket, const std::vector<HandOverOptions>& members) {
  std::vector<std::future<Result<SharedMemory>>> running;
  for (const HandOverOptions& one : members) {
    running.push_back(std::async(std::launch::async, [&] {
      return one.rank == one.ranks.front() ? hand_over(socket, one) : take_over(socket.name(), one);
    }));
  }
  std::vector<Result<SharedMemory>> found;
  for (auto& one : running) found.push_back(one.get());
  return found;
}

int mappings() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find("hvd-ranks") != std::string::npos ? 1 : 0;
  return found;
}

TEST_CASE("Ranks of one host get the same memory, and it goes with them", "[multi][collectives]") {
  {
    const HandOverSocket socket = HandOverSocket::open().value();
    const std::vector<int> ranks = {2, 5, 7};
    const auto found = share(socket, {options_of(5, ranks), options_of(2, ranks), options_of(7, ranks)});
    for (const auto& one : found) {
      REQUIRE(one.is_ok());
      REQUIRE(one.value().segment != nullptr);
    }
    CHECK(mappings() == 3);
    ShmLine* const first = found[0].value().segment->region(1).lines;
    ShmLine* const second = found[1].value().segment->region(1).lines;
    CHECK(first != second);
    first[1].marks[0] = 42;
    CHECK(second[1].marks[0] == 42);
    // A child that a rank forks does not have it.
    const pid_t child = ::fork();
    if (child == 0) ::_exit(mappings());
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(WEXITSTATUS(status) == 0);
  }
  CHECK(mappings() == 0);
}

TEST_CASE("Strangers get nothing and hold nobody up", "[multi][collectives]") {
  const HandOverSocket socket = HandOverSocket::open().value();
  const Fd hung_up = connect_to(socket.name());
  REQUIRE(::shutdown(hung_up.get(), SHUT_WR) == 0);
  const Fd liar = connect_to(socket.name());
  REQUIRE(send_all(liar.get(), Bytes(68, 0), Deadline::after(kPatience), -1).is_ok());
  const auto found =
      share(socket, {options_of(0, {0, 1}), options_of(1, {0, 1}), options_of(1, {0, 1}, 2, Millis(200))});
  CHECK(found[0].value().segment != nullptr);
  CHECK(found[1].value().segment != nullptr);
  CHECK(found[2].value().segment == nullptr);  // of another job
  for (const Fd* stranger : {&hung_up, &liar}) {
    std::array<std::uint8_t, 1> byte{};
    CHECK_FALSE(receive_exactly(stranger->get(), byte, Deadline::after(kPatience), -1).is_ok());
  }
}

// As rank 1 of the job introduces itself.
Bytes hello_of_rank_1() {
  const Bytes nonce(sizeof(ShmSegment::Nonce), 7);
  ByteWriter hello;
  hello.put(std::uint32_t{1});
  const Bytes who = hello.bytes();
  hello.put_raw(nonce);
  hello.put_raw(crypto::hmac_sha256(key_of(1), {as_bytes("hvd:shm:"), as_bytes("member"), as_bytes("|"), who, nonce}));
  return hello.take();
}

TEST_CASE("Another user gets nothing, nor is taken for the leader, whatever he knows", "[multi][collectives]") {
  const HandOverSocket socket = HandOverSocket::open().value();
  std::array<std::uint8_t, 1> byte{};
  std::optional<Fd> stranger;
  std::optional<Result<SharedMemory>> strangers;
  {
    const OtherUser other;
    if (!other.is_there()) return;  // only root can act as another one
    stranger = connect_to(socket.name());
    strangers = take_over(socket.name(), options_of(1, {0, 1}));
  }
  CHECK(strangers->value().why_not == "socket of rank 0: another user listens there");
  REQUIRE(send_all(stranger->get(), hello_of_rank_1(), Deadline::after(kPatience), -1).is_ok());
  const auto found = share(socket, {options_of(0, {0, 1}), options_of(1, {0, 1})});
  CHECK(found[0].value().segment != nullptr);
  CHECK(found[1].value().segment != nullptr);
  CHECK_FALSE(receive_exactly(stranger->get(), byte, Deadline::after(kPatience), -1).is_ok());
  // The same introduction opens the way to this user.
  const Fd known = connect_to(socket.name());
  REQUIRE(send_all(known.get(), hello_of_rank_1(), Deadline::after(kPatience), -1).is_ok());
  auto leader = std::async(std::launch::async, [&] { return hand_over(socket, options_of(0, {0, 1})); });
  CHECK(receive_exactly(known.get(), byte, Deadline::after(kPatience), -1).is_ok());
  ::shutdown(known.get(), SHUT_RDWR);
  CHECK(leader.get().value().segment == nullptr);
}

TEST_CASE("A leader of another job hands nothing over", "[multi][collectives]") {
  const HandOverSocket socket = HandOverSocket::open().value();
  const auto found = share(socket, {options_of(0, {0, 1}, 1, Millis(50)), options_of(1, {0, 1}, 2, Millis(200))});
  CHECK(found[0].value().why_not == "rank 1 did not come");
  CHECK(found[1].value().segment == nullptr);
  CHECK_THAT(found[1].value().why_not, Catch::StartsWith("rank 0: "));
}

TEST_CASE("When one rank does not come, none shares memory, and all know why", "[multi][collectives]") {
  const HandOverSocket socket = HandOverSocket::open().value();
  const std::vector<int> ranks = {0, 1, 2};
  const std::string why_not = "rank 2 did not come";
  std::vector<Result<SharedMemory>> found;
  // A busy machine may let rank 1 come later than that, too: then the leader waits longer.
  for (Millis patience(50); patience < kPatience && (found.empty() || found[0].value().why_not != why_not);
       patience *= 4) {
    found = share(socket, {options_of(0, ranks, 1, patience), options_of(1, ranks)});
  }
  CHECK(found[0].value().why_not == why_not);
  CHECK(found[1].value().why_not == why_not);
  CHECK(take_over("hvd-shm-nobody", options_of(2, ranks)).value().why_not == "socket of rank 0: connection refused");
}

TEST_CASE("A rank that has agreed and hears no conclusion does not guess", "[multi][collectives]") {
  auto socket = std::make_unique<HandOverSocket>(HandOverSocket::open().value());
  auto member = std::async(std::launch::async, [name = socket->name()] {
    return take_over(name, options_of(1, {0, 1, 2}, 1, Millis(5000)));
  });
  Pipe wake = make_pipe().value();
  HandOverOptions leader = options_of(0, {0, 1, 2});
  leader.wake_fd = wake.read_end.get();
  // Interrupted while it waits for rank 2; whether rank 1 has agreed by then, it can't know either.
  auto ended = std::async(std::launch::async, [&] { return hand_over(*socket, leader); });
  const Deadline patience = Deadline::after(kPatience);
  while (mappings() < 2 && !patience.expired()) std::this_thread::yield();
  REQUIRE(write_all(wake.write_end.get(), "", 1).is_ok());
  CHECK(ended.get().status().code() == StatusCode::kAborted);
  socket.reset();
  const auto found = member.get();
  const bool is_unsure = !found.is_ok() && found.status().message().find("did not say whether") != std::string::npos;
  CHECK((is_unsure || found.value().segment == nullptr));
}

}  // namespace
}  // namespace hvd::collectives
