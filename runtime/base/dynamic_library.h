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

// Fills a table of a library's functions, and remembers the first that is missing. Not thread-safe.
class FunctionTable {
 public:
  // `version_text`: a version number of the library's own, for people: "CUDA 11.0".
  FunctionTable(const DynamicLibrary& library, std::string (*version_text)(int))
      : library_(library), version_text_(version_text) {}

  // `since`: the version that introduced the function under this name.
  template <typename F>
  void take(F*& function, const char* name, int since) {
    function = library_.function<F>(name);
    if (function == nullptr && missing_.empty()) missing_ = std::string(name) + " (" + version_text_(since) + ")";
  }
  // Its name and version; "" when nothing is.
  const std::string& missing() const { return missing_; }

 private:
  const DynamicLibrary& library_;
  std::string (*const version_text_)(int);
  std::string missing_;
};

}  // namespace hvd
