#include "rendezvous/protocol/bodies.h"

#include <catch2/catch.hpp>

#include "test/support/layout.h"

using namespace hvd;
using namespace hvd::rendezvous;

namespace {

// Every proper prefix, and one byte more, must be refused.
template <typename Decode>
void check_exact(const Bytes& good, Decode decode) {
  for (std::size_t size = 0; size < good.size(); ++size) CHECK_FALSE(decode(ByteSpan(good).first(size)).is_ok());
  Bytes longer = good;
  longer.push_back(0);
  CHECK_FALSE(decode(longer).is_ok());
  CHECK(decode(good).is_ok());
}

}  // namespace

TEST_CASE("Session bodies read back and are exact", "[unit][bodies]") {
  const Nonce sent = crypto::random_nonce<Nonce>();
  const Bytes bytes = encode_session(sent);
  CHECK(decode_session(bytes).value() == sent);
  CHECK(bytes.size() <= kMaxSessionBodyBytes);
  check_exact(bytes, decode_session);
  check_exact(Bytes(kNonceBytes, 1), decode_session_answer);

  Bytes other_version = bytes;
  other_version[0] = 1;
  CHECK_THAT(decode_session(other_version).status().message(), Catch::Contains("protocol version 1, expected 3"));
}

TEST_CASE("Join bodies read back and are exact", "[unit][bodies]") {
  const RankNumbers numbers{
      .rank = 3, .size = 4, .local_rank = 1, .local_size = 2, .cross_rank = RankNumbers::kUnknown, .cross_size = 5};
  const JoinBody sent{.seat = make_seat(crypto::Secret::random(), {7, 9}),
                      .environment = numbers,
                      .progress = 1ULL << 40U,
                      .nonce = crypto::random_nonce<Nonce>(),
                      .wait = Millis(30000),
                      .row = {1, 2}};
  const Bytes bytes = encode_join(sent);
  const JoinBody got = decode_join(bytes).value();
  CHECK(got.seat.process.slot == 7);
  CHECK(got.seat.process.number == 9);
  CHECK(got.seat.token == sent.seat.token);
  CHECK(got.environment == numbers);
  CHECK(got.progress == 1ULL << 40U);
  CHECK(got.nonce == sent.nonce);
  CHECK(got.wait == sent.wait);
  CHECK(got.row == sent.row);
  check_exact(bytes, decode_join);

  const Bytes answer = encode_join_answer({.epoch = 7, .numbers = numbers});
  CHECK(decode_join_answer(answer).value().epoch == 7);
  CHECK(decode_join_answer(answer).value().numbers == numbers);
  check_exact(answer, decode_join_answer);

  const Bytes not_yet = encode_not_yet({.first_slot = 3, .missing = "never joined: 0"});
  CHECK(decode_not_yet(not_yet).value().first_slot == 3);
  CHECK(decode_not_yet(not_yet).value().missing == "never joined: 0");
  check_exact(not_yet, decode_not_yet);

  JoinBody long_wait = sent;
  long_wait.wait = Millis(30001);
  CHECK_THAT(decode_join(encode_join(long_wait)).status().message(), Catch::Contains("30001"));
  JoinBody long_row = sent;
  long_row.row = Bytes(kMaxRowBytes + 1);
  CHECK_FALSE(decode_join(encode_join(long_row)).is_ok());
}

TEST_CASE("The layout of bodies is that of this protocol version", "[unit][bodies]") {
  Nonce nonce{};
  nonce.front() = 1;
  nonce.back() = 2;
  const RankNumbers numbers{
      .rank = 3, .size = 4, .local_rank = 1, .local_size = 2, .cross_rank = RankNumbers::kUnknown, .cross_size = 5};
  JoinBody join{.seat = {.process = {7, 9}},
                .environment = numbers,
                .progress = 1ULL << 40U,
                .nonce = nonce,
                .wait = Millis(30000),
                .row = {1, 2}};
  join.seat.token.front() = 3;
  const Bytes value{1, 2, 3};
  CHECK(kProtocolVersion == 3);
  CHECK(test::layout_of(encode_session(nonce)) == 0x447f7bbdcfd69a9a);
  CHECK(test::layout_of(encode_join(join)) == 0xb9deb51c8d464221);
  CHECK(test::layout_of(encode_join_answer({.epoch = 7, .numbers = numbers})) == 0x27e1cccf0e6252c7);
  CHECK(test::layout_of(encode_not_yet({.first_slot = 3, .missing = "never joined: 0"})) == 0x7ca72e69447a1bab);
  CHECK(test::layout_of(encode_get_many({.scope = "s", .keys = {"a", "b/c"}})) == 0xcf8c50ba563fd181);
  CHECK(test::layout_of(encode_values({ByteSpan(value), std::nullopt, ByteSpan()})) == 0x47a94acb75f21e93);
  CHECK(test::layout_of(encode_host_news({.time_ms = 1'700'000'000'123, .change = 3})) == 0xb43e469e42d23d58);
  CHECK(test::layout_of(encode_error(Status::precondition("rank 1 says 2"))) == 0xc6e28fc6d94d393b);
}

TEST_CASE("mget bodies read back, are exact and hold their limits", "[unit][bodies]") {
  const Bytes bytes = encode_get_many({.scope = "s", .keys = {"a", "b/c"}});
  CHECK(decode_get_many(bytes).value().keys == std::vector<std::string>{"a", "b/c"});
  check_exact(bytes, decode_get_many);
  CHECK_FALSE(decode_get_many(encode_get_many({.scope = "s", .keys = {"a b"}})).is_ok());
  CHECK_FALSE(decode_get_many(encode_get_many({.scope = "", .keys = {}})).is_ok());
  const std::vector<std::string> most(kMaxKeysPerRequest, std::string(kMaxKeyBytes, 'k'));
  const Bytes largest = encode_get_many({.scope = "s", .keys = most});
  CHECK(largest.size() <= kMaxBodyBytes);
  CHECK(decode_get_many(largest).is_ok());
  CHECK_FALSE(
      decode_get_many(encode_get_many({.scope = "s", .keys = std::vector<std::string>(kMaxKeysPerRequest + 1, "k")}))
          .is_ok());

  const Bytes value{1, 2, 3};
  const Bytes values = encode_values({ByteSpan(value), std::nullopt, ByteSpan()});
  CHECK(values.size() == kValuesOverhead + 3 * kValueOverhead + value.size());
  const auto got = decode_values(values).value();
  REQUIRE(got.size() == 3);
  CHECK(got[0] == value);
  CHECK(got[1] == std::nullopt);
  CHECK(got[2] == Bytes{});
  check_exact(values, decode_values);
  Bytes bad_presence = encode_values({std::nullopt});
  bad_presence[4] = 2;
  CHECK_FALSE(decode_values(bad_presence).is_ok());
}

TEST_CASE("News of hosts read back and are exact", "[unit][bodies]") {
  const Bytes news = encode_host_news({.time_ms = 1'700'000'000'123, .change = 3});
  CHECK(decode_host_news(news).value().time_ms == 1'700'000'000'123);
  CHECK(decode_host_news(news).value().change == 3);
  check_exact(news, decode_host_news);
  CHECK_FALSE(decode_host_news(encode_host_news({.time_ms = 0, .change = 4})).is_ok());
}

TEST_CASE("Errors read back, and what is no error is one", "[unit][bodies]") {
  const Status sent = Status::precondition("rank 1 says 2");
  CHECK(decode_error(encode_error(sent)).to_string() == sent.to_string());
  CHECK(decode_error(encode_error(Status::ok())).code() == StatusCode::kInternal);
  CHECK(decode_error({}).code() == StatusCode::kInternal);
  CHECK(decode_error(as_bytes("hello, world")).code() == StatusCode::kInternal);
  CHECK(decode_error(encode_error(Status::internal(std::string(100000, 'x')))).message().size() == kMaxErrorTextBytes);
}
