#pragma once

#include <string>

#include "runtime/base/status.h"

namespace hvd {

// A shared library that is found when the program runs. It stays loaded for the life of the process: drivers and what
// is built on them do not survive being unloaded. Immutable; copies share the library. Thread-safe.
class DynamicLibrary {
 public:
  // As dlopen(3) searches for `file`, with its symbols visible to nobody else. The error is the loader's text.
  static Result<DynamicLibrary> open(const std::string& file);
  // The one that somebody has loaded in this process, by its soname or path; an error when nobody has.
  static Result<DynamicLibrary> find_loaded(const std::string& file);

  // The function `name`; null when the library has none. Requires: F is its type.
  template <typename F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(address(name));
  }
  // The file that the symbol `name` comes from; empty when there is none.
  std::string file_of(const char* name) const;

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}
  static Result<DynamicLibrary> open_with(const std::string& file, int flags);
  void* address(const char* name) const;

  void* handle_;
};

}  // namespace hvd
