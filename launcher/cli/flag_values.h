#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/cli/flag_table.h"
#include "launcher/environment/environment.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// A checked value: bool for switches and toggles, then by kind. kChoice is a string, kPair a list of two.
using FlagValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;

// Checks one value against its row. `source` ("--cycle-time-ms", "job.yaml:3: params.cycle_time_ms") opens the message.
Result<FlagValue> parse_flag_value(const FlagRow& row, const std::vector<std::string>& texts,
                                   const std::string& source);

// The values that the command line and then the configuration file decided, by dest. Externally synchronised.
class FlagValues {
 public:
  struct Entry {
    FlagValue value;
    std::string source;  // as in parse_flag_value
  };

  bool has(std::string_view dest) const { return entries_.find(dest) != entries_.end(); }
  // Replaces an earlier value; the parts of a kList are appended to it instead, without duplicates,
  // and so are kWords, with them.
  void set(const FlagRow& row, FlagValue value, std::string source);
  const Entry* find(std::string_view dest) const;

  // Nothing when the flag was not given. Requires: T is the row's type.
  template <typename T>
  std::optional<T> get(std::string_view dest) const {
    const Entry* entry = find(dest);
    if (entry == nullptr) return std::nullopt;
    return std::get<T>(entry->value);
  }
  bool is_true(std::string_view dest) const { return get<bool>(dest).value_or(false); }
  // Where the first of `dests` was given: its source, or "" when none was.
  std::string source_of(std::initializer_list<std::string_view> dests) const;
  // Where a flag was given that is none of `dests`: its source, or "" when there is none.
  std::string source_besides(std::initializer_list<std::string_view> dests) const;

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

// The variables that the given flags set for every rank. Flags that were not given set nothing, so that what the user
// exported in the shell reaches the ranks. Pure.
Variables flag_variables_of(const FlagValues& values);

// A number as Python's str(float) prints it: 20 is "20.0".
std::string python_float(double value);

inline constexpr std::size_t kMaxConfigFileBytes = 1u << 20;

// Fills in from the YAML text of --config-file what the command line left open. `file` opens the messages
// (`<file>:<line>: <section>.<key>: ...`). Unknown keys become notices; a bad value is an error. Pure.
Status apply_config_text(const std::string& text, std::string_view file, FlagValues& values,
                         std::vector<std::string>& notices);

// The same for a file of at most kMaxConfigFileBytes.
Status apply_config_file(const std::string& path, FlagValues& values, std::vector<std::string>& notices);

}  // namespace hvd::launcher
