// horovod/tensorflow/_ops.so: what tf.load_op_library() loads. TensorFlow makes Python wrappers for the ops that are
// registered while it loads a library, so loading this one makes the core, which has been in the process for long,
// register its ops. It links nothing.
#include <dlfcn.h>

#include <string>

namespace {

using RegisterFn = const char* (*)();

// HVD_CORE_FILE: the file name of the extension module horovod._core, which is one folder up.
std::string core_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&core_path), &info) == 0 || info.dli_fname == nullptr) return HVD_CORE_FILE;
  const std::string own = info.dli_fname;
  const auto name = own.rfind('/');
  const auto folder = name == std::string::npos || name == 0 ? name : own.rfind('/', name - 1);
  return folder == std::string::npos ? std::string("../") + HVD_CORE_FILE : own.substr(0, folder + 1) + HVD_CORE_FILE;
}

std::string register_ops() {
  const std::string path = core_path();
  void* const core = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (core == nullptr) return path + " is not loaded: import horovod.tensorflow instead of loading this library";
  const auto function = reinterpret_cast<RegisterFn>(::dlsym(core, "hvd_tensorflow_register"));
  if (function == nullptr) return path + " is of another version: it lacks hvd_tensorflow_register";
  const char* const problem = function();
  return problem != nullptr ? problem : "";
}

const std::string& problem() {
  static const std::string text = register_ops();
  return text;
}

// While the library is being loaded.
[[maybe_unused]] const bool registered = problem().empty();

}  // namespace

// Null when the ops are there, else what went wrong.
extern "C" __attribute__((visibility("default"))) const char* hvd_op_library_problem() {
  return problem().empty() ? nullptr : problem().c_str();
}
