#include "runtime/transport/handshake.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::transport;

namespace {

crypto::Secret secret(std::uint8_t fill) {
  return crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, fill)).value();
}

Hello make_hello() {
  Hello hello;
  hello.kind = ConnectionKind::kData;
  hello.from_rank = 3;
  hello.to_rank = 1;
  hello.epoch = 5;
  hello.nonce.fill(9);
  hello.host_name = "node-b";
  return hello;
}

AcceptorIdentity make_identity() { return {5, 1, 4, secret(1), secret(2)}; }

Nonce nonce_of(std::uint8_t fill) {
  Nonce nonce;
  nonce.fill(fill);
  return nonce;
}

// Moves bytes between the two in pieces of `piece` until neither wants more.
void exchange(ConnectorHandshake& connector, AcceptorHandshake& acceptor, std::size_t piece,
              const AcceptorIdentity& identity) {
  Bytes to_acceptor;
  Bytes to_connector;
  for (int i = 0; i < 10000; ++i) {
    const Bytes c = connector.take_output();
    to_acceptor.insert(to_acceptor.end(), c.begin(), c.end());
    const Bytes a = acceptor.take_output();
    to_connector.insert(to_connector.end(), a.begin(), a.end());
    if (acceptor.needs_identity()) acceptor.admit(identity);
    const std::size_t n = std::min({piece, to_acceptor.size(), acceptor.wanted()});
    acceptor.feed(ByteSpan(to_acceptor).first(n));
    to_acceptor.erase(to_acceptor.begin(), to_acceptor.begin() + static_cast<std::ptrdiff_t>(n));
    const std::size_t m = std::min({piece, to_connector.size(), connector.wanted()});
    connector.feed(ByteSpan(to_connector).first(m));
    to_connector.erase(to_connector.begin(), to_connector.begin() + static_cast<std::ptrdiff_t>(m));
  }
}

}  // namespace

TEST_CASE("A handshake between holders of the key succeeds however the bytes are cut", "[unit][transport]") {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
    ConnectorHandshake connector(make_hello(), secret(2));
    AcceptorHandshake acceptor(nonce_of(4));
    exchange(connector, acceptor, piece, make_identity());
    CHECK(connector.done());
    CHECK(acceptor.done());
    CHECK(acceptor.hello().from_rank == 3);
    CHECK(acceptor.hello().kind == ConnectionKind::kData);
    CHECK(acceptor.hello().host_name == "node-b");
  }
}

TEST_CASE("A handshake fails on both sides when the keys differ", "[unit][transport]") {
  ConnectorHandshake connector(make_hello(), secret(77));
  AcceptorHandshake acceptor(nonce_of(4));
  exchange(connector, acceptor, 1000, make_identity());
  CHECK(connector.failed());
  CHECK_FALSE(connector.done());
  CHECK_FALSE(acceptor.done());
  // A connector that lies on regardless is found out too.
  acceptor.feed(Bytes(acceptor.wanted(), 0));
  CHECK(acceptor.failed());
}

TEST_CASE("The key of the other kind of connection does not open this one", "[unit][transport]") {
  ConnectorHandshake connector(make_hello(), secret(1));  // the control key, for a data hello
  AcceptorHandshake acceptor(nonce_of(4));
  exchange(connector, acceptor, 1000, make_identity());
  CHECK(connector.failed());
}

TEST_CASE("An acceptor refuses a wrong epoch, rank or version and says which", "[unit][transport]") {
  Hello hello = make_hello();
  Refusal expected = Refusal::kNone;
  std::string_view words;
  Bytes patched;
  SECTION("epoch") {
    hello.epoch = 6;
    expected = Refusal::kEpoch;
    words = "epoch";
  }
  SECTION("to rank") {
    hello.to_rank = 2;
    expected = Refusal::kRank;
    words = "another rank";
  }
  SECTION("from rank beyond the size") {
    hello.from_rank = 4;
    expected = Refusal::kRank;
    words = "another rank";
  }
  SECTION("from itself") {
    hello.from_rank = 1;
    expected = Refusal::kRank;
    words = "another rank";
  }
  SECTION("version") {
    patched = hello.encode();
    patched[8] = 99;
    expected = Refusal::kVersion;
    words = "version";
  }
  ConnectorHandshake connector(hello, secret(2));
  AcceptorHandshake acceptor(nonce_of(4));
  if (patched.empty()) {
    exchange(connector, acceptor, 1000, make_identity());
  } else {
    acceptor.feed(ByteSpan(patched).first(acceptor.wanted()));
    connector.feed(acceptor.take_output());
  }
  CHECK(acceptor.failed());
  REQUIRE(connector.failed());
  CHECK(connector.refusal() == expected);
  CHECK(connector.error().message().find(words) != std::string::npos);
}

TEST_CASE("An acceptor answers strangers with nothing after twelve bytes", "[unit][transport]") {
  AcceptorHandshake acceptor(nonce_of(4));
  CHECK(acceptor.wanted() == 12);
  acceptor.feed(as_bytes("GET / HTTP/1"));
  CHECK(acceptor.failed());
  CHECK(acceptor.take_output().empty());
  CHECK(acceptor.wanted() == 0);
}

TEST_CASE("An acceptor's answer sent back to it does not open the connection", "[unit][transport]") {
  // A reflection: the attacker has no key and returns the acceptor's own MAC.
  AcceptorHandshake acceptor(nonce_of(4));
  const Bytes hello = make_hello().encode();
  acceptor.feed(ByteSpan(hello).first(12));
  acceptor.feed(ByteSpan(hello).subspan(12));
  acceptor.admit(make_identity());
  const Bytes reply = acceptor.take_output();
  REQUIRE(reply.size() == 65);
  acceptor.feed(ByteSpan(reply).subspan(33));
  CHECK(acceptor.failed());
}

TEST_CASE("A finish recorded from another handshake does not open this one", "[unit][transport]") {
  ConnectorHandshake connector(make_hello(), secret(2));
  AcceptorHandshake first(nonce_of(4));
  const Bytes hello = connector.take_output();
  const auto feed_hello = [&](AcceptorHandshake& acceptor) {
    acceptor.feed(ByteSpan(hello).first(12));
    acceptor.feed(ByteSpan(hello).subspan(12));
    acceptor.admit(make_identity());
  };
  feed_hello(first);
  const Bytes reply = first.take_output();
  connector.feed(ByteSpan(reply).first(1));
  connector.feed(ByteSpan(reply).subspan(1));
  REQUIRE(connector.done());
  const Bytes finish = connector.take_output();
  AcceptorHandshake second(nonce_of(5));
  feed_hello(second);
  second.feed(finish);
  CHECK(second.failed());
  first.feed(finish);
  CHECK(first.done());
}

TEST_CASE("A host name in a hello is cut to its field and made printable", "[unit][transport]") {
  Hello hello = make_hello();
  hello.host_name = std::string(3, '\n') + std::string(200, 'x');
  const Bytes bytes = hello.encode();
  REQUIRE(bytes.size() == Hello::kSize);
  AcceptorHandshake acceptor(nonce_of(4));
  acceptor.feed(ByteSpan(bytes).first(12));
  acceptor.feed(ByteSpan(bytes).subspan(12));
  REQUIRE(acceptor.needs_identity());
  CHECK(acceptor.hello().host_name == "???" + std::string(61, 'x'));
}
