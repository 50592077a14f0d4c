#include "runtime/base/status.h"

#include <system_error>

namespace hvd {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk: return "ok";
    case StatusCode::kInvalidArgument: return "invalid argument";
    case StatusCode::kPrecondition: return "precondition failed";
    case StatusCode::kTimeout: return "timeout";
    case StatusCode::kPeerLost: return "peer lost";
    case StatusCode::kAborted: return "aborted";
    case StatusCode::kHostsUpdated: return "hosts updated";
    case StatusCode::kInternal: return "internal error";
  }
  return "unknown";
}

Status Status::from_errno(std::string_view what, int err) {
  // std::generic_category: thread-safe, unlike strerror.
  return internal(std::string(what) + ": " + std::generic_category().message(err));
}

Status Status::annotate(std::string_view context) const {
  if (is_ok()) return *this;
  return {code_, std::string(context) + ": " + message_};
}

std::string Status::to_string() const {
  if (is_ok()) return "ok";
  return std::string(status_code_name(code_)) + ": " + message_;
}

}  // namespace hvd
