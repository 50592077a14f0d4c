#pragma once

#include <compare>
#include <cstdint>

#include "runtime/crypto/hash.h"
#include "runtime/crypto/secret.h"

namespace hvd::rendezvous {

// One process of a job. A slot is a place for one process at a time, numbered through the whole job by whoever starts
// its processes; the n-th process of a slot is its incarnation n. Under horovodrun these count from 1; 0 is a process
// that something else has started. Which rank a process is, may change; this does not.
struct Incarnation {
  std::int32_t slot = -1;
  std::uint32_t number = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): it means the 0 that the compiler itself compares with
  auto operator<=>(const Incarnation&) const = default;
};

// What a process shows when it joins as this one: HMAC-SHA256(key `seat` of epoch 0, i32 slot | u32 number). Whoever
// has the job's secret can make any token; it keeps a process that was given up out of its successor's place.
using SeatToken = crypto::Digest;
SeatToken seat_token(const crypto::Secret& job_secret, Incarnation process);

struct Seat {
  Incarnation process;
  SeatToken token{};
};
// The same in two steps, for a server that checks many tokens and does not hold the secret for it.
crypto::Secret seat_key(const crypto::Secret& job_secret);
Seat make_seat(const crypto::Secret& seat_key, Incarnation process);
bool is_authentic(const crypto::Secret& seat_key, const Seat& seat);

}  // namespace hvd::rendezvous
