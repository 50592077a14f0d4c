#include <cctype>
#include <string>

#include "horovod/session.h"
#include "horovod/types.h"
#include "python/src/build_facts.h"
#include "python/src/registration.h"
#include "runtime/config/env_reader.h"
#include "runtime/config/option_table.h"

namespace hvd::python {

namespace {

std::string constant_name(std::string_view prefix, std::string_view name) {
  std::string out(prefix);
  for (const char c : name) out.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  return out;
}

}  // namespace

int found_nccl_version() {
  return nccl_version(config::ProcessEnv().get(config::name_of(config::Option::kNcclLibrary)).value_or(""));
}

void register_constants(pybind11::module_& module) {
  module.attr("__version__") = HVD_VERSION;
  for (int i = 0; i < kOpTypeCount; ++i) {
    module.attr(constant_name("OP_", op_type_name(static_cast<OpType>(i))).c_str()) = i;
  }
  for (int i = 0; i < kReduceOpCount; ++i) {
    module.attr(constant_name("REDUCE_", reduce_op_name(static_cast<ReduceOp>(i))).c_str()) = i;
  }
  for (int i = 0; i < kDataTypeCount; ++i) {
    module.attr(constant_name("DTYPE_", data_type_name(static_cast<DataType>(i))).c_str()) = i;
  }
  module.def("built_with", [] {
    pybind11::dict built;
    for (const auto& [name, has] : kBuiltWith) built[name] = has;
    return built;
  });
  module.def("nccl_version", &found_nccl_version);
  module.def("gloo_library", &gloo_library, "The file that the Gloo symbols used by the core come from.");
}

}  // namespace hvd::python
