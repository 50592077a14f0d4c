#include "runtime/base/status.h"

#include <sys/resource.h>

#include <cerrno>
#include <new>
#include <system_error>

namespace hvd {

namespace {

// What the user can do about an error of the operating system; "" where nothing is known.
std::string hint_of(int err) {
  if (err == ENFILE) return " (the whole system is out of file descriptors: see /proc/sys/fs/file-nr)";
  rlimit limit = {};
  if (err != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "";
  return " (this process may open " + std::to_string(limit.rlim_cur) + "; `ulimit -n` raises that up to " +
         (limit.rlim_max == RLIM_INFINITY ? "any number" : std::to_string(limit.rlim_max)) + ")";
}

}  // namespace

void detail::misused_result(const char* what) { HVD_CHECK(false, what); }

std::string count_text(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

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

Status Status::from_exception(const std::exception& error) {
  const bool has_words = dynamic_cast<const std::bad_alloc*>(&error) == nullptr;
  return internal(has_words ? error.what() : std::generic_category().message(ENOMEM));
}

Status Status::from_errno(std::string_view what, int err) {
  // std::generic_category: thread-safe, unlike strerror.
  return internal(std::string(what) + ": " + std::generic_category().message(err) + hint_of(err));
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
