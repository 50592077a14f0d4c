#include "runtime/config/describe.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "runtime/config/option_table.h"

namespace hvd::config {

namespace {

// Its name contains KEY, TOKEN, SECRET, PASS or CRED, in any case.
bool is_sensitive_name(std::string_view name) {
  std::string upper;
  for (const char c : name) upper.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  for (const std::string_view word : {"KEY", "TOKEN", "SECRET", "PASS", "CRED"}) {
    if (upper.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::string printable_value(std::string_view name, std::string_view value) {
  return is_sensitive_name(name) ? "***" : std::string(value);
}

std::string config_text(const EnvReader& env, const std::function<std::string(std::string_view)>& origin_of) {
  std::size_t width = 0;
  for (const OptionRow& row : option_table()) width = std::max(width, row.name.size());
  std::string out;
  for (const OptionRow& row : option_table()) {
    const std::optional<std::string> value = env.get(row.name);
    out += std::string(row.name) + std::string(width + 2 - row.name.size(), ' ');
    if (value && !value->empty()) {
      const std::string_view fallback = row.default_text.empty() ? "unset" : row.default_text;
      out += printable_value(row.name, *value) + "  (" + origin_of(row.name) + "; default " + std::string(fallback) +
             ")\n";
    } else {
      out += row.default_text.empty() ? "-\n" : std::string(row.default_text) + "\n";
    }
  }
  return out;
}

}  // namespace hvd::config
