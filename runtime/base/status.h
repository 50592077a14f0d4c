#pragma once

#include "horovod/status.h"      // IWYU pragma: export
#include "runtime/base/check.h"  // IWYU pragma: export

namespace hvd {

// "1 slot", "2 slots": for messages.
std::string count_text(std::int64_t count, std::string_view noun);

}  // namespace hvd

// Returns the Status of `expr` from the enclosing function unless it is OK.
#define HVD_RETURN_IF_ERROR(expr)                          \
  do {                                                     \
    if (auto hvd_status_ = (expr); !hvd_status_.is_ok()) { \
      return hvd_status_;                                  \
    }                                                      \
  } while (false)

#define HVD_CONCAT_INNER(a, b) a##b
#define HVD_CONCAT(a, b) HVD_CONCAT_INNER(a, b)

// HVD_ASSIGN_OR_RETURN(auto x, f()): x = f().value(), or returns f()'s Status.
#define HVD_ASSIGN_OR_RETURN(lhs, expr)                \
  auto HVD_CONCAT(hvd_result_, __LINE__) = (expr);     \
  if (!HVD_CONCAT(hvd_result_, __LINE__).is_ok()) {    \
    return HVD_CONCAT(hvd_result_, __LINE__).status(); \
  }                                                    \
  lhs = std::move(HVD_CONCAT(hvd_result_, __LINE__)).value() /* NOLINT(bugprone-macro-parentheses): may declare */
