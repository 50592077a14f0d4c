#include "runtime/transport/auth/handshake.h"

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
  hello.number = kMaxSockets - 1;
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

// What a holder of data key 2 sends first.
Bytes first_message(const Hello& hello) { return ConnectorHandshake(hello, secret(2)).take_output(); }

void feed_all(AcceptorHandshake& acceptor, const Bytes& bytes) {
  acceptor.feed(ByteSpan(bytes).first(12));
  acceptor.feed(ByteSpan(bytes).subspan(12));
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
    CHECK(acceptor.hello().number == kMaxSockets - 1);
    CHECK(acceptor.hello().host_name == "node-b");
  }
}

TEST_CASE("A handshake fails on both sides when the keys differ", "[unit][transport]") {
  ConnectorHandshake connector(make_hello(), secret(77));
  AcceptorHandshake acceptor(nonce_of(4));
  exchange(connector, acceptor, 1000, make_identity());
  CHECK(connector.refusal() == Refusal::kSecret);
  CHECK(acceptor.failed());
}

TEST_CASE("Who repeats a recorded hello is told a challenge and no more", "[unit][transport]") {
  AcceptorHandshake acceptor(nonce_of(4));
  feed_all(acceptor, first_message(make_hello()));
  acceptor.admit(make_identity());
  CHECK(acceptor.take_output().size() == 65);
  acceptor.feed(Bytes(acceptor.wanted(), 0));
  CHECK(acceptor.failed());
  CHECK(acceptor.take_output().empty());
}

TEST_CASE("An acceptor that does not hold the key is found out by the connector", "[unit][transport]") {
  ConnectorHandshake connector(make_hello(), secret(2));
  connector.feed(Bytes(1, 0));
  connector.feed(Bytes(connector.wanted(), 0));
  CHECK(connector.failed());
}

TEST_CASE("A connection counts for the connector only when the acceptor has counted it", "[unit][transport]") {
  ConnectorHandshake connector(make_hello(), secret(2));
  AcceptorHandshake acceptor(nonce_of(4));
  feed_all(acceptor, connector.take_output());
  acceptor.admit(make_identity());
  const Bytes reply = acceptor.take_output();
  connector.feed(ByteSpan(reply).first(1));
  connector.feed(ByteSpan(reply).subspan(1));
  acceptor.feed(connector.take_output());
  CHECK(acceptor.done());
  CHECK_FALSE(connector.done());
  connector.feed(acceptor.take_output());
  CHECK(connector.done());
}

TEST_CASE("Who has to make room is told to come again, unless it was answered already", "[unit][transport]") {
  AcceptorHandshake silent(nonce_of(4));
  silent.turn_out();
  CHECK(silent.take_output() == Bytes{static_cast<std::uint8_t>(Refusal::kBusy)});
  AcceptorHandshake answered(nonce_of(4));
  feed_all(answered, first_message(make_hello()));
  answered.admit(make_identity());
  answered.take_output();
  answered.turn_out();
  CHECK(answered.take_output().empty());
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
  feed_all(acceptor, first_message(make_hello()));
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
    feed_all(acceptor, hello);
    acceptor.admit(make_identity());
  };
  feed_hello(first);
  const Bytes reply = first.take_output();
  connector.feed(ByteSpan(reply).first(1));
  connector.feed(ByteSpan(reply).subspan(1));
  REQUIRE_FALSE(connector.failed());
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
  const Bytes bytes = first_message(hello);
  REQUIRE(bytes.size() == Hello::kSize + 32);
  AcceptorHandshake acceptor(nonce_of(4));
  feed_all(acceptor, bytes);
  REQUIRE(acceptor.needs_identity());
  CHECK(acceptor.hello().host_name == "???" + std::string(61, 'x'));
}

TEST_CASE("A connection of no kind, or one too many, is refused", "[unit][transport]") {
  const std::uint8_t kind = GENERATE(as<std::uint8_t>{}, 0, 2 + kMaxSockets, 255);
  Bytes hello = make_hello().encode();
  hello[10] = kind;  // behind magic and version
  AcceptorHandshake acceptor(nonce_of(1));
  acceptor.feed(ByteSpan(hello).first(Hello::kPreludeSize));
  REQUIRE(acceptor.failed());
  CHECK(acceptor.error().message().find("unknown kind " + std::to_string(kind)) != std::string::npos);
}
