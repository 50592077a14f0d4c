#include "runtime/config/sensitive.h"

#include <cctype>

namespace hvd::config {

bool is_sensitive_name(std::string_view name) {
  std::string upper;
  for (const char c : name) upper.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  for (const std::string_view word : {"KEY", "TOKEN", "SECRET", "PASS", "CRED"}) {
    if (upper.find(word) != std::string::npos) return true;
  }
  return false;
}

std::string printable_value(std::string_view name, std::string_view value) {
  return is_sensitive_name(name) ? "***" : std::string(value);
}

}  // namespace hvd::config
