#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace hvd::launcher {

// Members of what a host has told. What is not there, or of another kind, is as good as nothing: the host's Python
// package may be another version.
inline std::string text_of(const nlohmann::ordered_json& told, const char* key) {
  const auto found = told.find(key);
  return found != told.end() && found->is_string() ? found->get<std::string>() : "";
}
inline std::optional<std::int64_t> number_of(const nlohmann::ordered_json& told, const char* key) {
  const auto found = told.find(key);
  if (found == told.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

}  // namespace hvd::launcher
