#include "python/src/tensorflow/c_api.h"

#include <dlfcn.h>

#include <string>

namespace hvd::tensorflow {

namespace {

// Where versions keep the C API; the first that has been loaded and has the function wins.
constexpr const char* kLibraries[] = {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"};

TfApi& table() {
  static TfApi api;  // written once, while the ops are registered
  return api;
}

template <typename Function>
void fill(Function& function, const char* symbol, std::string& missing) {
  void* const address = find_tf_symbol(symbol);
  function = reinterpret_cast<Function>(address);
  if (address == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(symbol);
}

}  // namespace

void* find_tf_symbol(const char* symbol) {
  for (const char* library : kLibraries) {
    void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* const address = ::dlsym(handle, symbol);
    ::dlclose(handle);
    if (address != nullptr) return address;
  }
  return ::dlsym(RTLD_DEFAULT, symbol);
}

Status load_tf_api() {
  std::string missing;
  TfApi found;
#define HVD_TF_FILL(result, name, arguments) fill(found.name, "TF_" #name, missing);
  HVD_TF_FUNCTIONS(HVD_TF_FILL)
#undef HVD_TF_FILL
  if (!missing.empty()) return Status::precondition("this TensorFlow's C API lacks " + missing);
  table() = found;
  return Status::ok();
}

const TfApi& tf() { return table(); }

Status TfStatus::to_status() const { return is_ok() ? Status::ok() : Status::internal(tf().Message(status_)); }

}  // namespace hvd::tensorflow
