#include "runtime/crypto/payload_seals.h"

namespace hvd::crypto {

Digest PayloadSeals::mac(int sender, std::uint64_t number, std::string_view purpose, ByteSpan payload) const {
  ByteWriter place;
  place.put(static_cast<std::uint32_t>(sender));
  place.put(number);
  const Bytes place_bytes = place.take();
  // Hashed apart, so that a large payload is not copied.
  const Digest purpose_hash = sha256(as_bytes(purpose));
  const Digest payload_hash = sha256(payload);
  return hmac_sha256(key_, {as_bytes(std::string_view("hvd:payload")), place_bytes, purpose_hash, payload_hash});
}

Bytes PayloadSeals::seal(std::string_view purpose, ByteSpan payload) {
  std::uint64_t number = 0;
  {
    const MutexLock lock(mutex_);
    number = ++last_;
  }
  ByteWriter out;
  out.put(number);
  out.put_raw(mac(rank_, number, purpose, payload));
  return out.take();
}

Result<std::size_t> PayloadSeals::open(int sender, std::string_view purpose, ByteSpan sealed) {
  const std::string from = std::string(purpose) + ": what came from rank " + std::to_string(sender);
  if (sealed.size() < kSealSize) {
    return Status::internal(from + " has " + std::to_string(sealed.size()) + " bytes, too few to be sealed");
  }
  const ByteSpan payload = sealed.first(sealed.size() - kSealSize);
  ByteReader in(sealed.last(kSealSize));
  const auto number = in.get<std::uint64_t>();
  const ByteSpan sent = in.take(sizeof(Digest));
  if (!constant_time_equal(sent, mac(sender, number, purpose, payload))) {
    return Status::internal(from +
                            " does not carry its seal: it was changed on the way, or that rank called something else");
  }
  const MutexLock lock(mutex_);
  if (!seen_[sender].take(number)) {
    return Status::internal(from + " is a repetition of an earlier message (number " + std::to_string(number) + ")");
  }
  return payload.size();
}

bool PayloadSeals::Seen::take(std::uint64_t number) {
  if (number > highest) {
    const std::uint64_t step = number - highest;
    before = step < kWindow ? before << static_cast<std::size_t>(step) : std::bitset<kWindow>();
    highest = number;
  }
  const std::uint64_t age = highest - number;
  if (age >= kWindow || before.test(static_cast<std::size_t>(age))) return false;
  before.set(static_cast<std::size_t>(age));
  return true;
}

}  // namespace hvd::crypto
