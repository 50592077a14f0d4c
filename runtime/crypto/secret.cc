#include "runtime/crypto/secret.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace hvd::crypto {

void random_bytes(std::span<std::uint8_t> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t n = ::getrandom(out.data() + filled, out.size() - filled, 0);
    if (n < 0 && errno == EINTR) continue;
    HVD_CHECK(n > 0, "getrandom failed");
    filled += static_cast<std::size_t>(n);
  }
}

Secret Secret::random() {
  Secret secret;
  random_bytes(secret.bytes_);
  return secret;
}

Result<Secret> Secret::from_bytes(ByteSpan bytes) {
  if (bytes.size() != kSecretSize) {
    return Status::invalid_argument("a secret has " + std::to_string(kSecretSize) + " bytes, not " +
                                    std::to_string(bytes.size()));
  }
  Secret secret;
  std::copy(bytes.begin(), bytes.end(), secret.bytes_.begin());
  return secret;
}

Secret::~Secret() { explicit_bzero(bytes_.data(), bytes_.size()); }

Secret Secret::derive(std::string_view purpose, std::uint64_t epoch) const {
  const std::string info = std::string(purpose) + "|" + std::to_string(epoch);
  Secret out;
  std::size_t size = out.bytes_.size();
  EVP_PKEY_CTX* context = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr);
  const bool ok =
      context != nullptr && EVP_PKEY_derive_init(context) > 0 &&
      EVP_PKEY_CTX_set_hkdf_md(context, EVP_sha256()) > 0 &&
      EVP_PKEY_CTX_set1_hkdf_key(context, bytes_.data(), static_cast<int>(bytes_.size())) > 0 &&
      EVP_PKEY_CTX_add1_hkdf_info(context, reinterpret_cast<const unsigned char*>(info.data()),
                                  static_cast<int>(info.size())) > 0 &&
      EVP_PKEY_derive(context, out.bytes_.data(), &size) > 0;
  EVP_PKEY_CTX_free(context);
  HVD_CHECK(ok && size == kSecretSize, "HKDF-SHA256 failed");
  return out;
}

}  // namespace hvd::crypto
