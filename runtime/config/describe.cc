#include "runtime/config/describe.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>

#include "runtime/config/option_table.h"

namespace hvd::config {

namespace {

std::string number(double value) {
  std::string text = std::to_string(static_cast<long long>(value));
  return value == std::floor(value) ? text : std::to_string(value);
}

std::string range(const OptionRow& row) {
  if (std::isinf(row.min)) return "";
  return ", " + number(row.min) + " to " + number(row.max);
}

std::string syntax(const OptionRow& row) {
  switch (row.kind) {
    case OptionKind::kText: return "text";
    case OptionKind::kInteger: return "integer" + range(row);
    case OptionKind::kReal: return "number" + range(row);
    case OptionKind::kBytes: return "bytes" + range(row);
    case OptionKind::kBool: return "bool";
    case OptionKind::kPorts: return "range of ports";
    case OptionKind::kCores: return "list of cores";
    case OptionKind::kChoice:
    case OptionKind::kLogLevel: break;
  }
  std::string words(row.choices);
  for (std::size_t at = words.find('|'); at != std::string::npos; at = words.find('|', at)) words.replace(at, 1, ", ");
  return words;
}

std::string_view reader(const OptionRow& row) {
  switch (row.reader) {
    case OptionReader::kRuntime: return "rank";
    case OptionReader::kLauncher: return "launcher";
    case OptionReader::kPython: return "Python";
    case OptionReader::kSpark: return "Spark";
  }
  return "";
}

std::string unset_or(std::string_view text) { return text.empty() ? "unset" : "`" + std::string(text) + "`"; }

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

std::string env_markdown() {
  std::string out =
      "# Environment variables\n\n"
      "Generated from `runtime/config/option_table.cc` (`horovodrun --print-config` shows the present values).\n"
      "A variable set to the empty string counts as unset. A value that does not fit is an error at `init()`, except\n"
      "where the text says otherwise. On rank 0 an unknown `HOROVOD_` name is a warning that names the nearest known\n"
      "one, if there is one; so is a variable of something that is not built.\n"
      "`bool`: an integer (greater than 0 is true), or true/false, yes/no, on/off. `bytes`: a plain number, or with\n"
      "the suffix K, M or G (also KB, KiB, ...), all powers of 1024.\n\n"
      "| variable | default | read by | value | meaning |\n|---|---|---|---|---|\n";
  for (const OptionRow& row : option_table()) {
    const std::string unbuilt(unbuilt_feature(row.option));
    out += "| " + std::string(row.name) + " | " + unset_or(row.default_text) + " | " + std::string(reader(row)) +
           " | " + syntax(row) + " | " + std::string(row.doc) +
           (unbuilt.empty() ? "" : " (no effect: this Horovod has no " + unbuilt + ")") + " |\n";
  }
  out += "\nKnown, but read only by builds and tests of Horovod 0.28 (no effect, no warning):\n";
  std::string line;
  for (const std::string_view name : build_variable_names()) {
    if (line.size() + name.size() > 110) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + std::string(name);
  }
  return out + line + "\n";
}

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
