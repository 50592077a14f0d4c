#include "runtime/crypto/secret.h"

#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/base/wipe.h"
#include "runtime/crypto/hash.h"
#include "runtime/crypto/openssl_failure.h"

namespace hvd::crypto {

// The memory of a secret and of all keys derived from it: a server has one for each connection. Nothing but keys is in
// it. Thread-safe; shared by its places.
class Secret::Pages {
 public:
  using Key = std::array<std::uint8_t, kSecretSize>;

  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    for (void* page : pages_) ::munmap(page, kPageBytes);
  }

  // Zeros.
  Key* take() HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (free_.empty()) add_page();
    Key* const key = free_.back();
    free_.pop_back();
    return key;
  }

  void wipe_and_give_back(Key* key) HVD_EXCLUDES(mutex_) {
    wipe(*key);
    const MutexLock lock(mutex_);
    free_.push_back(key);  // there is room, see add_page()
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;  // where pages are larger, the kernel rounds up
  static constexpr std::size_t kKeysOfPage = kPageBytes / sizeof(Key);

  void add_page() HVD_REQUIRES(mutex_) {
    void* const page = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HVD_CHECK(page != MAP_FAILED, "no memory for a key");
    // A system that does not know this (none since Linux 3.4) writes keys to core files, and all else works.
    (void)::madvise(page, kPageBytes, MADV_DONTDUMP);
    pages_.push_back(page);
    free_.reserve(pages_.size() * kKeysOfPage);
    auto* const keys = static_cast<Key*>(page);
    for (std::size_t i = 0; i < kKeysOfPage; ++i) free_.push_back(keys + i);
  }

  Mutex mutex_;
  std::vector<void*> pages_ HVD_GUARDED_BY(mutex_);
  std::vector<Key*> free_ HVD_GUARDED_BY(mutex_);
};

class Secret::Place {
 public:
  explicit Place(std::shared_ptr<Pages> pages) : pages_(std::move(pages)), key_(pages_->take()) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() { pages_->wipe_and_give_back(key_); }

  const std::shared_ptr<Pages>& pages() const { return pages_; }
  Pages::Key& key() const { return *key_; }

 private:
  std::shared_ptr<Pages> pages_;
  Pages::Key* key_;
};

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
  auto place = std::make_shared<Place>(std::make_shared<Pages>());
  random_bytes(place->key());
  return Secret(std::move(place));
}

Result<Secret> Secret::from_bytes(ByteSpan bytes) {
  if (bytes.size() != kSecretSize) {
    return Status::invalid_argument("a secret has " + std::to_string(kSecretSize) + " bytes, not " +
                                    std::to_string(bytes.size()));
  }
  auto place = std::make_shared<Place>(std::make_shared<Pages>());
  std::copy(bytes.begin(), bytes.end(), place->key().begin());
  return Secret(std::move(place));
}

ByteSpan Secret::bytes() const { return place_->key(); }

Secret Secret::derive(std::string_view purpose, std::uint64_t epoch) const {
  const std::string info = std::string(purpose) + "|" + std::to_string(epoch);
  auto place = std::make_shared<Place>(place_->pages());
  std::size_t size = kSecretSize;
  ERR_clear_error();
  EVP_PKEY_CTX* context = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr);
  const bool ok = context != nullptr && EVP_PKEY_derive_init(context) > 0 &&
                  EVP_PKEY_CTX_set_hkdf_md(context, EVP_sha256()) > 0 &&
                  EVP_PKEY_CTX_set1_hkdf_key(context, bytes().data(), static_cast<int>(kSecretSize)) > 0 &&
                  EVP_PKEY_CTX_add1_hkdf_info(context, reinterpret_cast<const unsigned char*>(info.data()),
                                              static_cast<int>(info.size())) > 0 &&
                  EVP_PKEY_derive(context, place->key().data(), &size) > 0;
  EVP_PKEY_CTX_free(context);
  if (!ok) throw_openssl_failure("HKDF-SHA256");
  HVD_CHECK(size == kSecretSize, "HKDF-SHA256 has another size");
  return Secret(std::move(place));
}

Secret Secret::derive(std::initializer_list<ByteSpan> parts) const {
  auto place = std::make_shared<Place>(place_->pages());
  Digest key = hmac_sha256(*this, parts);
  std::copy(key.begin(), key.end(), place->key().begin());
  wipe(key);
  return Secret(std::move(place));
}

}  // namespace hvd::crypto
