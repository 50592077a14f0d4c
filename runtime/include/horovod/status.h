#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

// How every call reports failure.
namespace hvd {

// What kind of failure a Status reports. The Python layer maps each code to one exception class.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  // the caller's input is wrong (ValueError); nothing was changed
  kPrecondition,     // not initialised, or ranks disagree (class B); the session goes on
  kTimeout,          // a machine did not answer within its deadline
  kPeerLost,         // a rank's process or connection is gone
  kAborted,          // the session was shut down or aborted while the operation was pending
  kHostsUpdated,     // elastic: the host list changed
  kInternal,         // our bug, or a failure of the operating system
};

std::string_view status_code_name(StatusCode code);

// An error value: a code and a message that names what failed, with the numbers in it. The first function that decides
// the error writes the message; callers add context with `annotate` or pass it on. Immutable in use, copyable.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }
  static Status invalid_argument(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
  static Status precondition(std::string m) { return {StatusCode::kPrecondition, std::move(m)}; }
  static Status timeout(std::string m) { return {StatusCode::kTimeout, std::move(m)}; }
  static Status peer_lost(std::string m) { return {StatusCode::kPeerLost, std::move(m)}; }
  static Status aborted(std::string m) { return {StatusCode::kAborted, std::move(m)}; }
  static Status internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }
  // kInternal with "<what>: <strerror(err)>".
  static Status from_errno(std::string_view what, int err);
  // kInternal, with its words; of std::bad_alloc, which has none, those of ENOMEM.
  static Status from_exception(const std::exception& error);

  bool is_ok() const { return code_ == StatusCode::kOk; }
  explicit operator bool() const = delete;  // say is_ok(): "true" would be ambiguous between success and error
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same code with "<context>: " before the message; OK stays OK.
  Status annotate(std::string_view context) const;
  // "ok" or "<code name>: <message>".
  std::string to_string() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

namespace detail {
// Our bug: ends the process.
[[noreturn]] void misused_result(const char* what);
}  // namespace detail

// Either a T or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}        // NOLINT(google-explicit-constructor): reads as `return value;`
  Result(Status status) : state_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (std::get<Status>(state_).is_ok()) detail::misused_result("a Result without a value needs an error");
  }

  bool is_ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return is_ok() ? Status::ok() : std::get<Status>(state_); }

  // Requires: is_ok().
  T& value() & {
    require_value();
    return std::get<T>(state_);
  }
  const T& value() const& {
    require_value();
    return std::get<T>(state_);
  }
  T&& value() && {
    require_value();
    return std::get<T>(std::move(state_));
  }

 private:
  void require_value() const {
    if (!is_ok()) detail::misused_result("value() of a failed Result");
  }

  std::variant<T, Status> state_;
};

}  // namespace hvd
