#include "launcher/join/join_messages.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("requests and verdicts are read as they were written, and nothing else is", "[unit][join]") {
  const Bytes request = encode(JoinRequest{.version = "1.2.3", .name = "n01", .node = "rack1"});
  CHECK(decode_join_request(request, "1.2.3").value().version == "1.2.3");
  CHECK(decode_join_request(request, "1.2.3").value().name == "n01");
  CHECK(decode_join_request(request, "1.2.3").value().node == "rack1");
  const Bytes verdict = encode(JoinVerdict{.accepted = false, .reason = std::string(2000, 'x')});
  CHECK_FALSE(decode_join_verdict(verdict).value().accepted);
  CHECK(decode_join_verdict(verdict).value().reason == std::string(1024, 'x'));
  CHECK(decode_join_verdict(encode(JoinVerdict{.accepted = true, .reason = ""})).value().accepted);
  for (const Bytes& whole : {request, verdict}) {
    for (std::size_t size = 0; size < whole.size(); size += 7) {
      CHECK_FALSE(decode_join_request(ByteSpan(whole).first(size), "1.2.3").is_ok());
      CHECK_FALSE(decode_join_verdict(ByteSpan(whole).first(size)).is_ok());
    }
  }
  Bytes longer = request;
  longer.push_back(0);
  CHECK_FALSE(decode_join_request(longer, "1.2.3").is_ok());
  Bytes third = verdict;
  third[0] = 2;
  CHECK_FALSE(decode_join_verdict(third).is_ok());
}

TEST_CASE("of a request of another version that is read, whatever follows", "[unit][join]") {
  ByteWriter older;  // without what this version has after the name
  older.put_string("1.2.2");
  older.put_string("n01");
  for (const Bytes& record : {older.take(), encode(JoinRequest{.version = "1.2.4", .name = "", .node = "rack1"})}) {
    const auto request = decode_join_request(record, "1.2.3");
    REQUIRE(request.is_ok());
    CHECK(request.value().version.starts_with("1.2."));
    CHECK(request.value().name.empty());
  }
}

TEST_CASE("the seeds of the fuzz target are requests", "[unit][join]") {
  for (const auto& [name, node] : {std::pair("request", ""), std::pair("request_with_node", "n01-0123")}) {
    INFO(name);
    std::ifstream file(std::string(HVD_TEST_SOURCE_DIR "/../../fuzz/corpus/join/") + name, std::ios::binary);
    const std::string seed((std::istreambuf_iterator<char>(file)), {});
    const auto request = decode_join_request(as_bytes(seed), "0.29.0");
    REQUIRE(request.is_ok());
    CHECK(request.value().node == node);
    CHECK(encode(request.value()) == Bytes(seed.begin(), seed.end()));
  }
}

TEST_CASE("a host's name is a name, without user and port", "[unit][join]") {
  for (const char* good : {"n01", "train-0.train", "10.0.0.1", "a_b"}) CHECK(check_host_name(good).is_ok());
  for (const char* bad : {"", "me@n01", "n01:22", "-oProxyCommand=x", "a b", "a,b", "[::1]"}) {
    INFO(bad);
    CHECK_FALSE(check_host_name(bad).is_ok());
  }
}

TEST_CASE("hosts come in the order of the numbers in their names", "[unit][join]") {
  const std::vector<std::string> ordered = {
      "", "a", "a1b2", "a1b10", "a02", "a2", "a10", "a10b", "b1", "n", "n1", "n001x", "n99999999999999999999", "nx"};
  std::vector<std::string> hosts(ordered.rbegin(), ordered.rend());
  std::ranges::sort(hosts, comes_before);
  CHECK(hosts == ordered);
  for (const std::string& host : hosts) CHECK_FALSE(comes_before(host, host));
}

TEST_CASE("a greeting is complete with its last byte, and proven by the token alone", "[unit][join]") {
  const crypto::Secret token = crypto::Secret::random();
  const Bytes nonce(kJoinNonceBytes, 3);
  const Bytes greeting = encode_greeting(token, nonce);
  GreetingReader reader(GreetingReader::From::kHost);
  for (std::size_t i = 0; i < greeting.size(); ++i) {
    const auto complete = reader.feed(ByteSpan(greeting).subspan(i, 1));
    REQUIRE(complete.is_ok());
    CHECK(complete.value() == (i + 1 == greeting.size()));
  }
  CHECK(Bytes(reader.nonce().begin(), reader.nonce().end()) == nonce);
  CHECK(reader.rest().empty());
  CHECK(reader.is_proven(token));
  CHECK_FALSE(reader.is_proven(crypto::Secret::random()));
  GreetingReader answer(GreetingReader::From::kLauncher);  // a nonce, and then records
  CHECK(answer.feed(greeting).value());
  CHECK(answer.rest().size() == greeting.size() - kJoinNonceBytes);
  GreetingReader stranger(GreetingReader::From::kHost);
  CHECK_FALSE(stranger.feed(Bytes{'G', 'E', 'T'}).is_ok());
}

TEST_CASE("the keys of a connection are its own, for each direction", "[unit][join]") {
  const crypto::Secret token = crypto::Secret::random();
  const Bytes a(kJoinNonceBytes, 1);
  const Bytes b(kJoinNonceBytes, 2);
  const auto text = [](const crypto::Secret& key) { return to_hex(key.bytes()); };
  const JoinKeys keys(token, a, b);
  CHECK(text(keys.to_launcher) == text(JoinKeys(token, a, b).to_launcher));
  CHECK(text(keys.to_host) != text(keys.to_launcher));
  CHECK(text(keys.to_host) != text(JoinKeys(token, b, a).to_host));
  CHECK(text(keys.to_host) != text(JoinKeys(crypto::Secret::random(), a, b).to_host));
  CHECK(proof_of_greeting(token, a) == proof_of_greeting(token, a));
  CHECK(proof_of_greeting(token, a) != proof_of_greeting(token, b));
  CHECK(proof_of_greeting(token, a) != proof_of_greeting(crypto::Secret::random(), a));
}
