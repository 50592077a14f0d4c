// The YAML of --config-file: it never throws, an error names the file, and an error changes nothing. The lines of
// --env-file: an error names the file, and what is accepted fits into an environment.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/cli/flag_values.h"
#include "runtime/base/check.h"

using namespace hvd::launcher;

namespace {

void check_env_file(const std::string& text) {
  Variables variables;
  const hvd::Status status =
      add_variables_of_file(text, "f", hvd::config::MapEnv({{"A1", "x"}, {"A2", "y"}}), variables);
  HVD_CHECK(status.is_ok() || status.message().starts_with("f:"), "an error names the file");
  for (const auto& [name, value] : variables) {
    HVD_CHECK(!name.empty() && name.find('=') == std::string::npos, "a name is a name");
    HVD_CHECK((name + value).find('\0') == std::string::npos, "a variable fits into an environment");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  FlagValues values;
  std::vector<std::string> notices;
  const hvd::Status status = apply_config_text(text, "f", values, notices);
  check_env_file(text);
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
