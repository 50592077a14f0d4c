#pragma once

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/wire/messages.h"

namespace hvd::wire {

// The codec of docs/design/wire.md. Encoding never fails for messages within the limits (HVD_CHECK otherwise: senders
// split before). Decoding takes bytes that may be hostile: anything that is not exactly one well-formed message of this
// version is refused with a message that says what and where, and takes no more memory than the limits allow.
Bytes encode(const Report& report);
Result<Report> decode_report(ByteSpan bytes);

Bytes encode(const Decision& decision);
Result<Decision> decode_decision(ByteSpan bytes);

// About how many bytes these take when encoded; never less than they do. For splitting at kMessageByteBudget.
std::size_t encoded_size_bound(const Request& request);  // of one rank
std::size_t encoded_size_bound(const MergedRequest& merged);
std::size_t encoded_size_bound(const Response& response);
std::size_t encoded_size_bound(const MergedChange& merged);
std::size_t encoded_size_bound(const SetDecision& decision);

}  // namespace hvd::wire
