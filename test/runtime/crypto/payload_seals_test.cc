#include "runtime/crypto/payload_seals.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::crypto;

namespace {

Secret key(std::uint8_t fill) { return Secret::from_bytes(Bytes(kSecretSize, fill)).value(); }

Bytes sealed(PayloadSeals& seals, std::string_view purpose, std::string_view payload) {
  Bytes bytes(payload.begin(), payload.end());
  const Bytes seal = seals.seal(purpose, bytes);
  bytes.insert(bytes.end(), seal.begin(), seal.end());
  return bytes;
}

}  // namespace

TEST_CASE("A sealed payload opens once, for its purpose, sender and key, and only as it was made", "[unit][crypto]") {
  PayloadSeals sender(key(1), 3);
  PayloadSeals receiver(key(1), 0);
  const Bytes good = sealed(sender, "broadcast|x", "payload");
  for (std::size_t i = 0; i < good.size(); ++i) {
    Bytes changed = good;
    changed[i] ^= 1U;
    CHECK_FALSE(receiver.open(3, "broadcast|x", changed).is_ok());
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    CHECK_FALSE(receiver.open(3, "broadcast|x", ByteSpan(good).first(size)).is_ok());
  }
  CHECK_FALSE(receiver.open(2, "broadcast|x", good).is_ok());
  CHECK_FALSE(receiver.open(3, "broadcast|y", good).is_ok());
  CHECK_FALSE(PayloadSeals(key(2), 0).open(3, "broadcast|x", good).is_ok());
  CHECK(receiver.open(3, "broadcast|x", good).value() == 7);
  const Status again = receiver.open(3, "broadcast|x", good).status();
  CHECK(again.code() == StatusCode::kInternal);
  CHECK_THAT(again.message(), Catch::Contains("from rank 3 is a repetition"));
  CHECK(sender.open(3, "broadcast|x", good).is_ok());  // an allgather brings one's own back
}

TEST_CASE("Seals may arrive in another order, and with gaps, but not after a thousand others", "[unit][crypto]") {
  PayloadSeals sender(key(1), 1);
  PayloadSeals receiver(key(1), 0);
  std::vector<Bytes> all;
  for (int i = 0; i < 1100; ++i) all.push_back(sealed(sender, "p", std::to_string(i)));
  CHECK(receiver.open(1, "p", all[1]).is_ok());
  CHECK(receiver.open(1, "p", all[0]).is_ok());
  CHECK_FALSE(receiver.open(1, "p", all[0]).is_ok());
  CHECK(receiver.open(1, "p", all[1025]).is_ok());
  CHECK_FALSE(receiver.open(1, "p", all[1]).is_ok());
  CHECK(receiver.open(1, "p", all[2]).is_ok());  // the oldest that is still remembered
  CHECK(receiver.open(1, "p", all[1099]).is_ok());
  CHECK_FALSE(receiver.open(1, "p", all[75]).is_ok());  // too old to tell
  CHECK(receiver.open(1, "p", all[76]).is_ok());
  CHECK_FALSE(receiver.open(1, "p", all[1025]).is_ok());
}

TEST_CASE("An empty payload can be sealed", "[unit][crypto]") {
  PayloadSeals seals(key(1), 0);
  CHECK(seals.open(0, "p", sealed(seals, "p", "")).value() == 0);
}
