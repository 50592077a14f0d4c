#include "rendezvous/protocol/seat.h"

#include "runtime/base/bytes.h"

namespace hvd::rendezvous {

SeatToken seat_token(const crypto::Secret& job_secret, Incarnation process) {
  ByteWriter text;
  text.put(process.slot);
  text.put(process.number);
  return crypto::hmac_sha256(job_secret.derive("seat", 0), {text.bytes()});
}

}  // namespace hvd::rendezvous
