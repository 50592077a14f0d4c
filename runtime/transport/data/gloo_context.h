#pragma once

#include <gloo/context.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime/base/status.h"

namespace hvd::transport {

class DataPlane;

// What a wait or an operation on our Gloo contexts throws: Gloo's algorithms ignore an aborted wait that returns false
// and would go on with wrong data, so it has to be an exception. Caught at the Gloo adapter of collectives/.
class WaitError : public std::runtime_error {
 public:
  explicit WaitError(Status status) : std::runtime_error(status.message()), status_(std::move(status)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

// A Gloo context over our transport for `ranks` (global, in member order). Gloo's new-style algorithms (the functions
// that take an options struct) run on it; the old ones need bound buffers and get an exception. Made by the fabric,
// owned by its user; used by one lane at a time.
Result<std::shared_ptr<gloo::Context>> make_gloo_context(std::shared_ptr<DataPlane> plane, std::uint64_t id,
                                                         std::vector<int> ranks);

}  // namespace hvd::transport
