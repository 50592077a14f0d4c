#pragma once

#include <cstdint>
#include <memory>

#include <gloo/context.h>

#include "runtime/base/deadline.h"
#include "runtime/collectives/backend.h"

namespace hvd::collectives {

// Every rank sends every other its part of `call.input` and receives theirs into `call.output`. All receives are posted
// before the first send, so a slow peer delays only its own part; each rank starts with its right neighbour, so that
// not all send to the same one at once. Parts of zero elements are not sent. `tag` differs between the calls in a row
// on one context. Throws what Gloo throws, and std::logic_error when the counts do not fit the context.
void alltoall(const std::shared_ptr<gloo::Context>& context, const CollectiveCall& call, Millis wait_timeout,
              std::uint32_t tag);

}  // namespace hvd::collectives
