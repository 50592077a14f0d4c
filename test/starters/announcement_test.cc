#include "starters/announcement.h"

#include <catch2/catch.hpp>

namespace hvd::starters {

namespace {

Announcement announcement_with(std::size_t endpoints) {
  transport::AddressRow row{.host = {"n1", "boot", "net:[1]", "pid:[2]"}, .endpoints = {}};
  for (std::size_t i = 0; i < endpoints; ++i) {
    const std::string ip = "fd00::" + std::to_string(i + 1);
    row.endpoints.push_back({transport::SocketAddress::from_text(ip, 4711).value(), "eth" + std::to_string(i)});
  }
  return {.size = 4, .tls = true, .secret = crypto::Secret::random(), .server = row};
}

}  // namespace

TEST_CASE("What rank 0 announces arrives", "[unit][starters]") {
  const Announcement sent = announcement_with(2);
  const std::string text = encode(sent);
  CHECK(text.find_first_not_of("0123456789abcdefhvd.") == std::string::npos);
  const Announcement got = decode_announcement(text).value();
  CHECK(got.size == 4);
  CHECK(got.tls);
  CHECK(to_hex(got.secret.bytes()) == to_hex(sent.secret.bytes()));
  CHECK(as_text(got.server.encode()) == as_text(sent.server.encode()));

  // A value of PMI has a limit: the last addresses are left out.
  const std::string longest = encode(announcement_with(transport::AddressRow::kMaxEndpoints));
  CHECK(longest.size() <= kMaxAnnouncementChars);
  CHECK(decode_announcement(longest).value().server.endpoints.size() > 3);
}

TEST_CASE("What is no announcement is an error that does not repeat it", "[unit][starters]") {
  const std::string good = encode(announcement_with(1));
  for (const std::string& text : {std::string(), std::string("hvd3.00"), std::string("hvd2.0g"), good + "00",
                                  good.substr(0, good.size() - 2), good.substr(0, 60), encode(announcement_with(0))}) {
    const auto wrong = decode_announcement(text);
    REQUIRE_FALSE(wrong.is_ok());
    CHECK_THAT(wrong.status().message(), Catch::StartsWith("what rank 0 announced: "));
    CHECK(wrong.status().message().size() < 200);
  }
}

}  // namespace hvd::starters
