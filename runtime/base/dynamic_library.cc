#include "runtime/base/dynamic_library.h"

#include <dlfcn.h>

namespace hvd {

Result<DynamicLibrary> DynamicLibrary::open_with(const std::string& file, int flags) {
  void* const handle = ::dlopen(file.c_str(), flags);
  if (handle != nullptr) return DynamicLibrary(handle);
  const char* const why = ::dlerror();
  return Status::precondition(why != nullptr ? std::string(why) : file + ": not loaded in this process");
}

Result<DynamicLibrary> DynamicLibrary::open(const std::string& file) { return open_with(file, RTLD_NOW | RTLD_LOCAL); }

Result<DynamicLibrary> DynamicLibrary::find_loaded(const std::string& file) {
  return open_with(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

void* DynamicLibrary::address(const char* name) const { return ::dlsym(handle_, name); }

std::string DynamicLibrary::file_of(const char* name) const {
  Dl_info info{};
  void* const symbol = address(name);
  if (symbol == nullptr || ::dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace hvd
