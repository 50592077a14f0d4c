#include <cstring>
#include <string>

#include "python/src/tensorflow/c_api.h"
#include "python/src/tensorflow/xla_collective.h"
#include "python/src/xla/call.h"
#include "python/src/xla/ffi.h"
#include "runtime/base/status.h"

namespace hvd::tensorflow {

namespace {

namespace ffi = xla::ffi;

constexpr const char* kGetApi = "_ZN3xla3ffi12GetXlaFfiApiEv";  // xla::ffi::GetXlaFfiApi()
constexpr const char* kPlatform = "Host";                       // XLA for CPUs

Status register_target(const ffi::Api& api, const XlaTarget& target) {
  ffi::RegisterArgs arguments{};
  arguments.struct_size = sizeof(arguments);
  arguments.name = {target.name, std::strlen(target.name)};
  arguments.platform = {kPlatform, std::strlen(kPlatform)};
  arguments.bundle.execute = target.handler;
  ffi::Error* const error = api.handler_register(&arguments);
  if (error == nullptr) return Status::ok();
  return Status::internal(xla::take_message(api, error)).annotate(target.name);
}

Status register_xla() {
  void* const function = find_tf_symbol(kGetApi);
  if (function == nullptr) return Status::precondition("its XLA has no xla::ffi::GetXlaFfiApi()");
  const ffi::Api* const api = reinterpret_cast<const ffi::Api* (*)()>(function)();
  const auto version = std::to_string(api->version.major) + "." + std::to_string(api->version.minor);
  if (api->struct_size < sizeof(ffi::Api) || api->version.major != ffi::kMajor || api->version.minor < ffi::kMinor) {
    return Status::precondition("its XLA has version " + version +
                                " of the interface for custom calls, not 0.1 or later");
  }
  for (const XlaTarget* target = begin_xla_targets(); target != end_xla_targets(); ++target) {
    HVD_RETURN_IF_ERROR(register_target(*api, *target));
  }
  return Status::ok();
}

}  // namespace

}  // namespace hvd::tensorflow

// Makes the collectives known to the XLA of the TensorFlow that is loaded; once, at the first function that is
// compiled. Null when all went well, else what went wrong.
extern "C" __attribute__((visibility("default"))) const char* hvd_tensorflow_register_xla() {
  static const std::string problem = hvd::tensorflow::register_xla().message();
  return problem.empty() ? nullptr : problem.c_str();
}
