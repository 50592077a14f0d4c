#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/seat.h"
#include "rendezvous/protocol/signing.h"
#include "runtime/base/bytes.h"
#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

// What requests and responses carry, as structs and their encoding; the grammar is in
// docs/design/rendezvous.md. PUT and GET carry the value itself and need nothing here. decode_*
// take hostile bytes and check every limit.
namespace hvd::rendezvous {

// POST /v1/session: a nonce that is fresh for each session. The answer's body is the server's nonce.
Bytes encode_session(const Nonce& nonce);
Result<Nonce> decode_session(ByteSpan bytes);
Result<Nonce> decode_session_answer(ByteSpan bytes);

// The numbers of a rank in its job, as HOROVOD_RANK and the like have them.
struct RankNumbers {
  static constexpr int kUnknown = -1;
  int rank = kUnknown;
  int size = kUnknown;
  int local_rank = kUnknown;
  int local_size = kUnknown;
  int cross_rank = kUnknown;
  int cross_size = kUnknown;
  bool operator==(const RankNumbers&) const = default;
};

// POST /v1/join. Answered 200 with a JoinAnswer, 202 with a NotYetBody when `wait` was not enough, or an error.
struct JoinBody {
  Seat seat;
  RankNumbers environment;     // what the process was told when it was started
  std::uint64_t progress = 0;  // how far its training has come; who has come furthest has the state of the job
  Nonce nonce{};               // of this call of join()
  Millis wait{0};
  Bytes row;
};
Bytes encode_join(const JoinBody& body);
Result<JoinBody> decode_join(ByteSpan bytes);
// Numbers that the plan does not know are kUnknown.
struct JoinAnswer {
  std::uint64_t epoch = 0;
  RankNumbers numbers;
};
Bytes encode_join_answer(const JoinAnswer& answer);
Result<JoinAnswer> decode_join_answer(ByteSpan bytes);
struct NotYetBody {
  int first_slot = -1;  // the lowest that waits: one process may speak for all that wait
  std::string missing;  // for people
};
Bytes encode_not_yet(const NotYetBody& body);
Result<NotYetBody> decode_not_yet(ByteSpan bytes);

// POST /v1/mget. The answer holds values for the first so many keys, as many as fit into a body and
// at least one; the client asks again for the rest.
struct GetManyBody {
  std::string scope;
  std::vector<std::string> keys;
};
Bytes encode_get_many(const GetManyBody& body);
Result<GetManyBody> decode_get_many(ByteSpan bytes);
Bytes encode_values(const std::vector<std::optional<ByteSpan>>& values);
Result<std::vector<std::optional<Bytes>>> decode_values(ByteSpan bytes);
// What a value adds to encode_values, and what an empty list has.
inline constexpr std::size_t kValuesOverhead = 4;
inline constexpr std::size_t kValueOverhead = 5;

// What a launcher says of its hosts to the ranks of an epoch: under "1", "2", ... of this scope of the epoch.
inline constexpr const char* kHostNewsScope = "host-news";
struct HostNewsBody {
  std::int64_t time_ms = 0;  // since 1970
  int change = 0;            // bits: 1 removed, 2 added
};
Bytes encode_host_news(const HostNewsBody& body);
Result<HostNewsBody> decode_host_news(ByteSpan bytes);

// What the starter says to processes that have not joined: where other hosts reach this one, the numeric address, since
// ranks that were told a loopback address would listen for those of their own host alone.
inline constexpr const char* kJobScope = "job";
inline constexpr const char* kOutsideKey = "outside";

// A rank of this epoch is gone, or joins again, as the value says in words: for those that still begin it.
inline constexpr const char* kLossScope = "loss";
inline constexpr const char* kLossKey = "first";

// The body of a signed error: the Status that the caller of the client gets.
Bytes encode_error(const Status& status);
// Never OK: bytes that are no error are kInternal.
Status decode_error(ByteSpan bytes);

}  // namespace hvd::rendezvous
