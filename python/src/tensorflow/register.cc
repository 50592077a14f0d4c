#include <string>

#include "python/src/tensorflow/c_api.h"
#include "python/src/tensorflow/definitions.h"

// Called by the op library (op_library.cc) while TensorFlow loads it. Null when all went well, else what went wrong.
extern "C" __attribute__((visibility("default"))) const char* hvd_tensorflow_register() {
  static const std::string problem = [] {
    const hvd::Status loaded = hvd::tensorflow::load_tf_api();
    if (!loaded.is_ok()) return loaded.message();
    return hvd::tensorflow::register_ops().message();
  }();
  return problem.empty() ? nullptr : problem.c_str();
}
