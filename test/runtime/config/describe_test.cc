#include "runtime/config/describe.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

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

// The text of docs/env.md.
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

}  // namespace

TEST_CASE("docs/env.md is the text generated from the option table", "[unit][config]") {
  const std::string path = HVD_TEST_SOURCE_DIR "/../../../docs/env.md";
  // HVD_REWRITE=1 config_test: writes the file anew after the table was changed.
  if (std::getenv("HVD_REWRITE") != nullptr) std::ofstream(path) << env_markdown();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  REQUIRE(text.str() == env_markdown());
}

TEST_CASE("The configuration listing has a line per variable with its present value", "[unit][config]") {
  const std::string text = config_text(
      MapEnv({{"HOROVOD_CACHE_CAPACITY", "7"}, {"HOROVOD_SECRET_FILE", "/run/hidden"}, {"HOROVOD_GLOO_IFACE", ""}}),
      [](std::string_view name) { return "from " + std::string(name.substr(8, 5)); });
  REQUIRE(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) == option_table().size());
  for (const OptionRow& row : option_table()) REQUIRE(text.find(row.name) != std::string::npos);
  REQUIRE(text.find("7  (from CACHE; default 1024)\n") != std::string::npos);
  REQUIRE(text.find("/run/hidden") == std::string::npos);
  REQUIRE(text.find("***  (from SECRE; default unset)\n") != std::string::npos);
}

TEST_CASE("Names of secrets are recognised in any case", "[unit][config]") {
  for (const char* name : {"AWS_SECRET_ACCESS", "API_KEY", "github_token", "DB_PASSWORD", "MY_CREDS"}) {
    INFO(name);
    REQUIRE(printable_value(name, "x") == "***");
  }
  REQUIRE(printable_value("PATH", "/bin") == "/bin");
}

}  // namespace hvd::config
