#include "runtime/tls/tunnel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/fd.h"

using namespace hvd;
using tls::Flush;
using tls::Role;
using tls::Tunnel;

namespace {

constexpr std::size_t kRecordBytes = 16384;

crypto::Secret key(std::uint8_t fill) { return crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, fill)).value(); }

Deadline soon() { return Deadline::after(Millis(20000)); }

// Two ends of a stream, each with its tunnel.
struct Pair {
  explicit Pair(std::uint8_t connectors = 1, std::uint8_t acceptors = 1,
                std::uint64_t records_per_key = Tunnel::kRecordsPerKey) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    left = Fd(ends[0]);
    right = Fd(ends[1]);
    connector = std::make_unique<Tunnel>(ends[0], Role::kConnector, key(connectors), records_per_key);
    acceptor = std::make_unique<Tunnel>(ends[1], Role::kAcceptor, key(acceptors), records_per_key);
  }

  std::pair<Status, Status> shake() {
    Status accepted;
    std::jthread peer([&] { accepted = shake_hands(*acceptor, soon(), -1); });
    const Status connected = shake_hands(*connector, soon(), -1);
    if (!connected.is_ok()) shutdown(left.get(), SHUT_RDWR);
    peer.join();
    return {connected, accepted};
  }

  Fd left, right;
  std::unique_ptr<Tunnel> connector, acceptor;
};

Bytes numbers(std::size_t size) {
  Bytes bytes(size);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}

Bytes receive_all(Tunnel& tunnel, std::size_t size) {
  Bytes all(size);
  for (std::size_t at = 0; at < size;) {
    at += receive_some(tunnel, std::span(all).subspan(at), soon(), -1).value();
  }
  return all;
}

}  // namespace

TEST_CASE("Bytes come through a tunnel as they were, both ways at once, over many keys", "[unit][tls]") {
  Pair pair(1, 1, 3);  // a new key with every third record
  const auto [connected, accepted] = pair.shake();
  REQUIRE(connected.is_ok());
  REQUIRE(accepted.is_ok());
  const Bytes there = numbers(3'000'001);
  const Bytes back = numbers(1'234'567);
  std::array<Status, 2> sent;
  Bytes received;
  {
    const std::jthread sends([&] { sent[0] = send_all(*pair.connector, there, soon(), -1); });
    const std::jthread answers([&] { sent[1] = send_all(*pair.acceptor, back, soon(), -1); });
    const std::jthread reads([&] { received = receive_all(*pair.connector, back.size()); });
    CHECK(receive_all(*pair.acceptor, there.size()) == there);
  }
  CHECK(received == back);
  CHECK(sent[0].is_ok());
  CHECK(sent[1].is_ok());
}

TEST_CASE("What a tunnel took is out only when flush() says so; parts keep their order", "[unit][tls]") {
  Pair pair;
  REQUIRE(pair.shake().first.is_ok());
  Bytes header = numbers(48);
  Bytes body = numbers(200'000);
  Bytes sent;
  for (bool full = false; !full;) {  // until the socket takes no more
    const std::array<iovec, 2> parts{iovec{header.data(), header.size()}, iovec{body.data(), body.size()}};
    const ssize_t taken = pair.connector->send(parts);
    full = taken < static_cast<ssize_t>(header.size() + body.size());
    for (ssize_t i = 0; i < taken; ++i) {
      const auto at = static_cast<std::size_t>(i);
      sent.push_back(at < header.size() ? header[at] : body[at - header.size()]);
    }
  }
  CHECK(pair.connector->flush() == Flush::kWaiting);
  const iovec more{header.data(), header.size()};
  CHECK(pair.connector->send({&more, 1}) == -1);
  CHECK(errno == EAGAIN);
  const std::size_t most = sent.size() - kRecordBytes;
  Bytes received = receive_all(*pair.acceptor, most);
  CHECK(pair.connector->flush() == Flush::kDone);
  const Bytes rest = receive_all(*pair.acceptor, sent.size() - most);
  received.insert(received.end(), rest.begin(), rest.end());
  CHECK(received == sent);
}

TEST_CASE("Another key, and a peer that does not speak TLS, end in the handshake, on both sides", "[unit][tls]") {
  Pair strangers(1, 2);
  const auto [connected, accepted] = strangers.shake();
  CHECK_FALSE(connected.is_ok());
  CHECK_FALSE(accepted.is_ok());

  for (const std::string_view words : {"HVDXPORT hello there", "HTTP/1.1 400 Bad Request\r\n\r\n"}) {
    Pair pair;
    REQUIRE(write(pair.left.get(), words.data(), words.size()) == static_cast<ssize_t>(words.size()));
    CHECK(shake_hands(*pair.acceptor, soon(), -1).code() == StatusCode::kPrecondition);
  }
}

TEST_CASE("A changed byte ends the connection with EBADMSG and gives nothing of its record", "[unit][tls]") {
  Pair pair;
  REQUIRE(pair.shake().first.is_ok());
  REQUIRE(send_all(*pair.connector, numbers(100), soon(), -1).is_ok());
  // The record is taken out on its way, changed, and put back.
  std::array<std::uint8_t, 4096> record;
  const ssize_t size = recv(pair.right.get(), record.data(), record.size(), 0);
  REQUIRE(size > 100);
  record[50] ^= 1U;
  REQUIRE(send(pair.left.get(), record.data(), static_cast<std::size_t>(size), 0) == size);
  std::array<std::uint8_t, 100> into{};
  const iovec part{into.data(), into.size()};
  CHECK(pair.acceptor->receive({&part, 1}) == -1);
  CHECK(errno == EBADMSG);
  CHECK(pair.acceptor->has_buffered());  // the socket will not tell of it again
  CHECK(pair.acceptor->receive({&part, 1}) == -1);
}

TEST_CASE("The end of the stream is the end, after all that came before it", "[unit][tls]") {
  Pair pair;
  REQUIRE(pair.shake().first.is_ok());
  REQUIRE(send_all(*pair.connector, numbers(40'000), soon(), -1).is_ok());
  shutdown(pair.left.get(), SHUT_WR);
  CHECK(receive_all(*pair.acceptor, 40'000) == numbers(40'000));
  std::uint8_t byte = 0;
  const iovec part{&byte, 1};
  CHECK(pair.acceptor->receive({&part, 1}) == 0);
  // The other direction still goes.
  REQUIRE(send_all(*pair.acceptor, numbers(10), soon(), -1).is_ok());
  CHECK(receive_all(*pair.connector, 10) == numbers(10));
}

TEST_CASE("An error of the socket is told by the send() that meets it, and by flush()", "[unit][tls]") {
  Pair pair;
  REQUIRE(pair.shake().first.is_ok());
  Bytes body = numbers(100'000);
  const iovec part{body.data(), body.size()};
  while (pair.connector->flush() == Flush::kDone) REQUIRE(pair.connector->send({&part, 1}) > 0);
  CHECK(pair.connector->flush() == Flush::kWaiting);
  pair.right.reset();
  CHECK(pair.connector->flush() == Flush::kFailed);
  CHECK((errno == EPIPE || errno == ECONNRESET));
  CHECK(pair.connector->send({&part, 1}) == -1);
  CHECK((errno == EPIPE || errno == ECONNRESET));
  CHECK_FALSE(send_all(*pair.connector, numbers(10), soon(), -1).is_ok());

  Pair fresh;
  REQUIRE(fresh.shake().first.is_ok());
#ifdef HVD_FAILPOINTS
  REQUIRE(failpoint::arm("tls.send=ENOMEM").is_ok());
  CHECK(fresh.connector->send({&part, 1}) == -1);
  CHECK(errno == ENOMEM);
  REQUIRE(failpoint::arm("").is_ok());
  CHECK(fresh.connector->flush() == Flush::kFailed);
  CHECK(errno == ENOMEM);
  CHECK(send_all(*fresh.acceptor, numbers(10), soon(), -1).is_ok());  // the other direction still goes
  CHECK(receive_all(*fresh.connector, 10) == numbers(10));
#endif
}

TEST_CASE("A handshake whose words cannot be sent fails", "[unit][tls]") {
  Pair pair;
  pair.right.reset();
  CHECK(pair.connector->shake_hands() == Tunnel::Step::kFailed);
  CHECK(pair.connector->error().code() == StatusCode::kPeerLost);
}

TEST_CASE("A key that is due after the stream was broken is an error of send()", "[unit][tls]") {
  Pair pair(1, 1, 1);
  REQUIRE(pair.shake().first.is_ok());
  REQUIRE(send_all(*pair.acceptor, numbers(10), soon(), -1).is_ok());
  const std::array<std::uint8_t, 30> garbage{0x17, 3, 3, 0, 25};
  REQUIRE(write(pair.left.get(), garbage.data(), garbage.size()) == static_cast<ssize_t>(garbage.size()));
  std::uint8_t byte = 0;
  const iovec part{&byte, 1};
  CHECK(pair.acceptor->receive({&part, 1}) == -1);
  CHECK(errno == EBADMSG);
  CHECK(pair.acceptor->send({&part, 1}) == -1);
  CHECK(errno == EBADMSG);
  CHECK(pair.acceptor->flush() == Flush::kFailed);
}

TEST_CASE("One call takes no more than its share, however much there is", "[unit][tls]") {
  Pair pair;
  REQUIRE(pair.shake().first.is_ok());
  pair.acceptor->read_ahead();
  constexpr std::size_t kSize = 8U << 20U;
  const Bytes sent = numbers(kSize);
  Status done;
  const std::jthread sends([&] { done = send_all(*pair.connector, sent, soon(), -1); });
  Bytes received(kSize);
  for (std::size_t at = 0; at < kSize;) {
    const iovec part{received.data() + at, kSize - at};
    const ssize_t got = pair.acceptor->receive({&part, 1});
    REQUIRE(got <= static_cast<ssize_t>(Tunnel::kEnoughForACall + kRecordBytes));
    if (got > 0) at += static_cast<std::size_t>(got);
  }
  CHECK(received == sent);
}
