#include "launcher/cli/rank_env.h"

#include <charconv>
#include <cmath>

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

std::map<std::string, std::string> rank_env_of(const FlagValues& values) {
  std::map<std::string, std::string> env;
  for (const FlagRow& row : flag_table()) {
    const FlagValues::Entry* entry = values.find(row.dest);
    if (row.export_as == FlagExport::kNone || entry == nullptr) continue;
    if (!row.needs.empty() && !is_set(values.find(row.needs))) continue;
    env[std::string(variable_of(row))] = export_text(row, entry->value);
  }
  const auto nics = values.get<std::vector<std::string>>("network_interfaces");
  if (nics && !nics->empty()) {
    std::string all;
    for (const std::string& nic : *nics) all += (all.empty() ? "" : ",") + nic;
    env["HOROVOD_GLOO_IFACE"] = nics->front();
    env["NCCL_SOCKET_IFNAME"] = all;
  }
  return env;
}

}  // namespace hvd::launcher
