#include <catch2/catch.hpp>

#include "runtime/crypto/hash.h"
#include "runtime/crypto/secret.h"

using namespace hvd;
using namespace hvd::crypto;

TEST_CASE("sha256 gives the FIPS 180-2 digest of 'abc'", "[unit][crypto]") {
  CHECK(to_hex(sha256(as_bytes("abc"))) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("hmac_sha256 gives RFC 4231's digest for a 32-byte key", "[unit][crypto]") {
  // Test case 1 of RFC 4231 has a 20-byte key; HMAC pads keys with zeros, so 12 zero bytes after it change nothing.
  Bytes key(32, 0);
  std::fill_n(key.begin(), 20, std::uint8_t{0x0b});
  const Secret secret = Secret::from_bytes(key).value();
  const char* expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
  CHECK(to_hex(hmac_sha256(secret, {as_bytes("Hi There")})) == expected);
  CHECK(to_hex(hmac_sha256(secret, {as_bytes("Hi "), as_bytes("There")})) == expected);
}

TEST_CASE("Secret derives different keys for different purposes and epochs", "[unit][crypto]") {
  const Secret root = Secret::random();
  const auto hex = [](const Secret& s) { return to_hex(s.bytes()); };
  CHECK(hex(root.derive("kv", 1)) == hex(root.derive("kv", 1)));
  CHECK(hex(root.derive("kv", 1)) != hex(root.derive("kv", 2)));
  CHECK(hex(root.derive("kv", 1)) != hex(root.derive("data", 1)));
  CHECK(hex(Secret::random()) != hex(root));
}

TEST_CASE("Secret refuses anything but 32 bytes", "[unit][crypto]") {
  CHECK_FALSE(Secret::from_bytes(Bytes(31)).is_ok());
  CHECK(Secret::from_bytes(Bytes(32)).is_ok());
}

TEST_CASE("constant_time_equal compares content and size", "[unit][crypto]") {
  CHECK(constant_time_equal(as_bytes("abc"), as_bytes("abc")));
  CHECK_FALSE(constant_time_equal(as_bytes("abc"), as_bytes("abd")));
  CHECK_FALSE(constant_time_equal(as_bytes("abc"), as_bytes("ab")));
}
