#include "runtime/crypto/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "runtime/crypto/openssl_failure.h"

namespace hvd::crypto {

Digest sha256(ByteSpan data) {
  Digest out;
  ERR_clear_error();
  if (SHA256(data.data(), data.size(), out.data()) == nullptr) throw_openssl_failure("SHA-256");
  return out;
}

Digest hmac_sha256(const Secret& key, std::initializer_list<ByteSpan> parts) {
  // One contiguous copy: our messages are small, and the one-shot HMAC() is the part of the API that is not deprecated.
  Bytes all;
  for (const ByteSpan part : parts) all.insert(all.end(), part.begin(), part.end());
  Digest out;
  unsigned int size = 0;
  ERR_clear_error();
  const auto* made = HMAC(EVP_sha256(), key.bytes().data(), static_cast<int>(key.bytes().size()), all.data(),
                          all.size(), out.data(), &size);
  if (made == nullptr) throw_openssl_failure("HMAC-SHA256");
  HVD_CHECK(size == out.size(), "HMAC-SHA256 has another size");
  return out;
}

bool constant_time_equal(ByteSpan a, ByteSpan b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace hvd::crypto
