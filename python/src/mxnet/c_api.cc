#include "python/src/mxnet/c_api.h"

#include <dlfcn.h>

namespace hvd::mxnet {

namespace {

Api& table() {
  static Api api;  // written once, while horovod.mxnet is imported
  return api;
}

template <typename Function>
void fill(Function& function, void* library, const char* symbol, std::string& missing) {
  void* const address = ::dlsym(library, symbol);
  function = reinterpret_cast<Function>(address);
  if (address == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(symbol);
}

}  // namespace

Status load_api(void* library) {
  std::string missing;
  Api found;
#define HVD_MXNET_FILL(result, name, arguments) fill(found.name, library, "MX" #name, missing);
  HVD_MXNET_FUNCTIONS(HVD_MXNET_FILL)
#undef HVD_MXNET_FILL
  if (!missing.empty()) return Status::precondition("this MXNet's library lacks " + missing);
  std::string optional;
  fill(found.reorder, library, "_ZNK5mxnet7NDArray20Reorder2DefaultAsyncEv", optional);
  table() = found;
  return Status::ok();
}

const Api& api() { return table(); }

Status to_status(int code) {
  if (code == 0) return Status::ok();
  const std::string text = api().GetLastError();
  const bool is_layout = text.find("IsMKLDNNData") != std::string::npos;
  return Status::internal("MXNet: " + text.substr(0, text.find('\n')) +
                          (is_layout ? "; pass a copy of the array (its copy() has rows)" : ""));
}

}  // namespace hvd::mxnet
