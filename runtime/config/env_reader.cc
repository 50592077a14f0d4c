#include "runtime/config/env_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace hvd::config {

std::optional<std::string> ProcessEnv::get(std::string_view name) const {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::vector<std::string> ProcessEnv::names() const {
  std::vector<std::string> names;
  if (environ == nullptr) return names;  // after clearenv
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    names.emplace_back(text.substr(0, text.find('=')));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::optional<std::string> MapEnv::get(std::string_view name) const {
  const auto found = variables_.find(name);
  if (found == variables_.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> MapEnv::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : variables_) names.push_back(name);
  return names;
}

}  // namespace hvd::config
