#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <string_view>

#include "runtime/base/bytes.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/crypto/hash.h"

namespace hvd::crypto {

// Seals for bytes that their receiver will do more with than compute: objects to be unpickled. Connections are
// authenticated when they are made and not encrypted afterwards, so who sits on the path may change what passes. A seal
// says that `sender`, a holder of the key, made exactly these bytes for this purpose, and each receiver takes it once.
//
//   seal = u64 number, HMAC-SHA256(key, "hvd:payload" | u32 sender | u64 number | SHA256(purpose) | SHA256(payload))
//
// Numbers rise with each seal of a sender. A receiver remembers the last kWindow of each sender, because operations of
// several threads may end in another order than they began in; what is older is refused. Thread-safe.
class PayloadSeals {
 public:
  static constexpr std::size_t kSealSize = sizeof(std::uint64_t) + sizeof(Digest);

  // `key`: of its own purpose and epoch.
  PayloadSeals(const Secret& key, int rank) : key_(key), rank_(rank) {}

  Bytes seal(std::string_view purpose, ByteSpan payload) HVD_EXCLUDES(mutex_);
  // `sealed` is a payload and its seal; gives the size of the payload. kInternal when `sender` did not make it for this
  // purpose, or when it was here before.
  Result<std::size_t> open(int sender, std::string_view purpose, ByteSpan sealed) HVD_EXCLUDES(mutex_);

 private:
  static constexpr std::size_t kWindow = 1024;
  struct Seen {
    std::uint64_t highest = 0;
    std::bitset<kWindow> before;  // bit n: highest - n was here
    bool take(std::uint64_t number);
  };
  Digest mac(int sender, std::uint64_t number, std::string_view purpose, ByteSpan payload) const;

  const Secret key_;
  const int rank_;
  Mutex mutex_;
  std::uint64_t last_ HVD_GUARDED_BY(mutex_) = 0;
  std::map<int, Seen> seen_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::crypto
