#include <algorithm>
#include <string>

#include "launcher/environment/environment.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

// `*` stands for any text, `?` for one letter.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t star = std::string_view::npos;  // where the last '*' stands, and what it has taken so far ends
  std::size_t taken = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      taken = i;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[i])) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

Status add_by_name(const std::string& pattern, const config::EnvReader& launcher, Variables& chosen) {
  bool found = false;
  const bool is_pattern = pattern.find_first_of("*?") != std::string::npos;
  for (const std::string& name : launcher.names()) {
    if (is_of_one_job(name) || !matches(pattern, name)) continue;
    chosen[name] = launcher.get(name).value_or("");
    found = true;
  }
  if (found) return Status::ok();
  return Status::invalid_argument(config::quoted(pattern) +
                                  (is_pattern ? " matches no variable of horovodrun's environment"
                                              : " is not set in horovodrun's environment; NAME=VALUE gives a value"));
}

}  // namespace

Status add_chosen_variable(const std::string& text, const config::EnvReader& launcher, Variables& chosen) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (name.empty()) return Status::invalid_argument(config::quoted(text) + " has no name before '='");
  if (name.find_first_of(" \t") != std::string::npos) {
    return Status::invalid_argument(config::quoted(name) + " is not the name of a variable: it has a blank");
  }
  if (is_of_one_job(name)) return Status::invalid_argument(name + " is set for each rank by horovodrun itself");
  if (equals == std::string::npos) return add_by_name(name, launcher, chosen);
  chosen[name] = text.substr(equals + 1);
  return Status::ok();
}

Status add_variables_of_file(std::string_view text, std::string_view file, const config::EnvReader& launcher,
                             Variables& chosen) {
  std::size_t number = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (config::trim(line).empty() || config::trim(line).starts_with('#')) continue;
    const Status added = line.find('\0') == std::string::npos ? add_chosen_variable(line, launcher, chosen)
                                                              : Status::invalid_argument("a NUL byte");
    HVD_RETURN_IF_ERROR(added.annotate(std::string(file) + ":" + std::to_string(number)));
  }
  return Status::ok();
}

}  // namespace hvd::launcher
