#pragma once

#include <stdexcept>

#include "runtime/base/status.h"

namespace hvd::transport {

// What a wait or an operation on our Gloo contexts throws: Gloo's algorithms ignore an aborted wait that returns false
// and would go on with wrong data, so it has to be an exception. Caught at the Gloo adapter of collectives/.
class WaitError : public std::runtime_error {
 public:
  explicit WaitError(Status status) : std::runtime_error(status.message()), status_(std::move(status)) {}
  const Status& status() const { return status_; }

 private:
  Status status_;
};

}  // namespace hvd::transport
