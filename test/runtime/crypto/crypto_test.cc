#include <openssl/evp.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

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

TEST_CASE("What OpenSSL lacks is named, and is no want of memory", "[unit][crypto]") {
  const Secret root = Secret::random();
  const auto all = [](const char* providers) { REQUIRE(EVP_set_default_properties(nullptr, providers) == 1); };
  all("provider=none");
  CHECK_THROWS_WITH(sha256(as_bytes("abc")), "OpenSSL has no SHA-256 here: unsupported");
  CHECK_THROWS_WITH(hmac_sha256(root, {as_bytes("Hi There")}), "OpenSSL has no HMAC-SHA256 here: unsupported");
  CHECK_THROWS_WITH(root.derive("kv", 1), "OpenSSL has no HKDF-SHA256 here: unsupported");
  all("");
  CHECK_NOTHROW(root.derive("kv", 1));
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

namespace {

// The flags of the mapping that this address lies in, as /proc/self/smaps has them: " rd wr ... dd ... ".
std::string vm_flags(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t first = 0;
    std::uintptr_t last = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      begin = first;
      end = last;
    } else if (line.starts_with("VmFlags:") && begin <= wanted && wanted < end) {
      return line.substr(8) + " ";
    }
  }
  return "";
}

}  // namespace

TEST_CASE("Core files leave out the pages of a secret, its copies and the keys derived from it", "[unit][crypto]") {
  const Secret root = Secret::random();
  const Secret copy = root;  // NOLINT(performance-unnecessary-copy-initialization): copies are the subject
  CHECK(copy.bytes().data() == root.bytes().data());
  std::vector<Secret> all = {root, Secret::from_bytes(Bytes(32)).value()};
  for (std::uint64_t i = 0; i < 300; ++i)
    all.push_back(i % 2 == 0 ? root.derive("data", i) : root.derive({as_bytes("x")}));
  std::set<const std::uint8_t*> places;
  std::set<std::uintptr_t> pages;
  for (const Secret& secret : all) {
    const std::uint8_t* place = secret.bytes().data();
    places.insert(place);
    if (!pages.insert(reinterpret_cast<std::uintptr_t>(place) / 4096).second) continue;
    CHECK(vm_flags(place).find(" dd ") != std::string::npos);
  }
  CHECK(places.size() == all.size());
  CHECK(pages.size() == 4);  // three of the family, one of the secret that came from elsewhere
  CHECK(vm_flags(&all).find(" dd ") == std::string::npos);
}

TEST_CASE("A key is wiped with its last copy, and its place is used again", "[unit][crypto]") {
  const Secret root = Secret::random();
  auto key = std::make_unique<Secret>(root.derive("kv", 0));
  auto copy = std::make_unique<Secret>(*key);
  const ByteSpan place = key->bytes();
  const Bytes before(place.begin(), place.end());
  key.reset();
  CHECK(std::ranges::equal(place, before));
  copy.reset();
  CHECK(std::ranges::count(place, 0) == kSecretSize);  // `root` keeps the page
  const Secret next = root.derive("kv", 0);
  CHECK(next.bytes().data() == place.data());
  CHECK(std::ranges::equal(next.bytes(), before));
}
