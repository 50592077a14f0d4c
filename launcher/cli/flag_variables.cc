#include <charconv>
#include <cmath>

#include "launcher/cli/flag_values.h"

namespace hvd::launcher {

namespace {

bool is_set(const FlagValues::Entry* entry) {
  if (entry == nullptr) return false;
  const bool* truth = std::get_if<bool>(&entry->value);
  return truth == nullptr || *truth;
}

std::string export_text(const FlagRow& row, const FlagValue& value) {
  switch (row.export_as) {
    case FlagExport::kBit: return std::get<bool>(value) ? "1" : "0";
    case FlagExport::kInverseBit: return std::get<bool>(value) ? "0" : "1";
    case FlagExport::kMegabytes: return std::to_string(std::get<std::int64_t>(value) << 20);
    case FlagExport::kReal: return python_float(std::get<double>(value));
    case FlagExport::kPlain:
    case FlagExport::kNone: break;
  }
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  return std::get<std::string>(value);
}

}  // namespace

std::string python_float(double value) {
  char buffer[64];
  // Python writes 1000000.0 where the shortest form would be 1e+06.
  const double size = std::fabs(value);
  const bool fixed = value == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  char* end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Variables flag_variables_of(const FlagValues& values) {
  Variables variables;
  for (const FlagRow& row : flag_table()) {
    const FlagValues::Entry* entry = values.find(row.dest);
    if (row.export_as == FlagExport::kNone || entry == nullptr) continue;
    if (!row.needs.empty() && !is_set(values.find(row.needs))) continue;
    variables[std::string(variable_of(row))] = export_text(row, entry->value);
  }
  return variables;
}

}  // namespace hvd::launcher
