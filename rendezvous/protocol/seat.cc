#include "rendezvous/protocol/seat.h"

#include "runtime/base/bytes.h"

namespace hvd::rendezvous {

crypto::Secret seat_key(const crypto::Secret& job_secret) { return job_secret.derive("seat", 0); }

Seat make_seat(const crypto::Secret& seat_key, Incarnation process) {
  ByteWriter text;
  text.put(process.slot);
  text.put(process.number);
  return {.process = process, .token = crypto::hmac_sha256(seat_key, {text.bytes()})};
}

SeatToken seat_token(const crypto::Secret& job_secret, Incarnation process) {
  return make_seat(seat_key(job_secret), process).token;
}

bool is_authentic(const crypto::Secret& seat_key, const Seat& seat) {
  return crypto::constant_time_equal(make_seat(seat_key, seat.process).token, seat.token);
}

}  // namespace hvd::rendezvous
