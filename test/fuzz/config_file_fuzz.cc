// The YAML of --config-file: it never throws, an error names the file, and an error changes nothing.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/cli/flag_values.h"
#include "runtime/base/check.h"

using namespace hvd::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  FlagValues values;
  std::vector<std::string> notices;
  const hvd::Status status = apply_config_text(text, "f", values, notices);
  const auto env = flag_variables_of(values);
  if (!status.is_ok()) {
    HVD_CHECK(status.message().starts_with("f:"), "an error names the file");
    HVD_CHECK(env.empty(), "an error sets nothing");
  }
  for (const auto& [name, value] : env) {
    HVD_CHECK(value.find('\0') == std::string::npos, "a value fits into an environment");
  }
  return 0;
}
