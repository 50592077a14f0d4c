#include "runtime/config/describe.h"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runtime/config/option_table.h"

namespace hvd::config {

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
