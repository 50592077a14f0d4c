#pragma once

#include <gloo/context.h>

#include <memory>
#include <vector>

#include "runtime/transport/data_plane.h"

namespace hvd::transport {

// A Gloo context over our transport for `ranks` (global, in member order). Gloo's new-style algorithms (the functions
// that take an options struct) run on it; the old ones need bound buffers and get an exception. Made by the fabric,
// owned by its user; used by one lane at a time.
Result<std::shared_ptr<gloo::Context>> make_gloo_context(std::shared_ptr<DataPlane> plane, std::uint64_t id,
                                                         std::vector<int> ranks);

}  // namespace hvd::transport
