#pragma once

#include <openssl/err.h>

#include <new>
#include <stdexcept>
#include <string>

namespace hvd::crypto {

// Throws what OpenSSL says of a call that failed: std::bad_alloc if it got no memory, else std::runtime_error with its
// first reason. Requires: ERR_clear_error() before the call, as others use OpenSSL on this thread too.
[[noreturn]] inline void throw_openssl_failure(const std::string& what) {
  const unsigned long first = ERR_get_error();
  bool no_memory = first == 0;  // not even for the reason
  for (unsigned long error = first; error != 0; error = ERR_get_error()) {
    no_memory = no_memory || ERR_GET_REASON(error) == ERR_R_MALLOC_FAILURE;
  }
  if (no_memory) throw std::bad_alloc();
  const char* const reason = ERR_reason_error_string(first);
  throw std::runtime_error("OpenSSL has no " + what + " here: " + (reason == nullptr ? "unknown error" : reason));
}

}  // namespace hvd::crypto
