#include "runtime/crypto/sealed_records.h"

#include <openssl/evp.h>

#include <array>
#include <memory>

#include "runtime/base/check.h"
#include "runtime/base/wipe.h"

namespace hvd::crypto {
namespace {

constexpr int kTagBytes = 16;
constexpr int kSizeBytes = 4;
using Nonce = std::array<std::uint8_t, 12>;
using Context = std::unique_ptr<EVP_CIPHER_CTX, void (*)(EVP_CIPHER_CTX*)>;

Nonce nonce_of(std::uint64_t number) {
  Nonce nonce{};
  std::memcpy(nonce.data() + (nonce.size() - sizeof(number)), &number, sizeof(number));
  return nonce;
}

// Ready for the record of that number, whose size it knows already.
Context context_of(const Secret& key, std::uint64_t number, const std::uint8_t* size, bool seals) {
  Context context(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  const Nonce nonce = nonce_of(number);
  int written = 0;
  const bool ok = context != nullptr &&
                  EVP_CipherInit_ex(context.get(), EVP_chacha20_poly1305(), nullptr, key.bytes().data(), nonce.data(),
                                    seals ? 1 : 0) > 0 &&
                  EVP_CipherUpdate(context.get(), nullptr, &written, size, kSizeBytes) > 0;
  HVD_CHECK(ok, "ChaCha20-Poly1305 failed");
  return context;
}

}  // namespace

Bytes RecordSealer::seal(ByteSpan plain) {
  HVD_CHECK(plain.size() <= kMaxRecordBytes, "a record of more than its limit");
  ByteWriter out;
  out.reserve(kSizeBytes + plain.size() + kTagBytes);
  out.put(static_cast<std::uint32_t>(plain.size()));
  Bytes record = out.take();
  record.resize(kSizeBytes + plain.size() + kTagBytes);
  const Context context = context_of(key_, next_++, record.data(), true);
  int written = 0;
  std::uint8_t* const text = record.data() + kSizeBytes;
  const bool ok = EVP_CipherUpdate(context.get(), text, &written, plain.data(), static_cast<int>(plain.size())) > 0 &&
                  EVP_CipherFinal_ex(context.get(), text + written, &written) > 0 &&
                  EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, text + plain.size()) > 0;
  HVD_CHECK(ok, "ChaCha20-Poly1305 failed");
  return record;
}

void RecordOpener::feed(ByteSpan bytes) {
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(at_));
  at_ = 0;
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Bytes>> RecordOpener::next() {
  if (!error_.is_ok()) return error_;
  std::uint8_t* const record = buffer_.data() + at_;
  const std::size_t left = buffer_.size() - at_;
  if (left < kSizeBytes) return std::optional<Bytes>();
  const auto size = ByteReader({record, kSizeBytes}).get<std::uint32_t>();
  if (size > kMaxRecordBytes) {
    error_ = Status::invalid_argument("a sealed record of " + std::to_string(size) + " bytes, the limit is " +
                                      std::to_string(kMaxRecordBytes));
    return error_;
  }
  if (left < kSizeBytes + size + kTagBytes) return std::optional<Bytes>();
  const Context context = context_of(key_, next_++, record, false);
  Bytes plain(size);
  int written = 0;
  std::uint8_t* const text = record + kSizeBytes;
  const bool ok = EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, text + size) > 0 &&
                  EVP_CipherUpdate(context.get(), plain.data(), &written, text, static_cast<int>(size)) > 0 &&
                  EVP_CipherFinal_ex(context.get(), plain.data() + written, &written) > 0;
  if (!ok) {
    wipe(plain);
    error_ = Status::invalid_argument("a record that was not sealed with the key of this connection");
    return error_;
  }
  at_ += kSizeBytes + size + kTagBytes;
  return std::optional<Bytes>(std::move(plain));
}

}  // namespace hvd::crypto
