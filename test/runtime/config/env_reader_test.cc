#include "runtime/config/env_reader.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>

namespace hvd::config {

TEST_CASE("ProcessEnv tells an empty variable from one that is not set", "[unit][config]") {
  ::setenv("HVD_TEST_EMPTY", "", 1);
  ::setenv("HVD_TEST_FULL", "a=b", 1);
  ::unsetenv("HVD_TEST_NONE");
  const ProcessEnv env;
  REQUIRE(env.get("HVD_TEST_EMPTY") == "");
  REQUIRE(env.get("HVD_TEST_FULL") == "a=b");
  REQUIRE(env.get("HVD_TEST_NONE") == std::nullopt);
  const std::vector<std::string> names = env.names();
  REQUIRE(std::is_sorted(names.begin(), names.end()));
  REQUIRE(std::count(names.begin(), names.end(), "HVD_TEST_FULL") == 1);
  REQUIRE(std::count(names.begin(), names.end(), "HVD_TEST_NONE") == 0);
}

TEST_CASE("MapEnv holds what it was given and nothing else", "[unit][config]") {
  ::setenv("HVD_TEST_FULL", "outside", 1);
  const MapEnv env({{"A", "1"}, {"B", ""}});
  REQUIRE(env.get("A") == "1");
  REQUIRE(env.get("B") == "");
  REQUIRE(env.get("HVD_TEST_FULL") == std::nullopt);
  REQUIRE(env.names() == std::vector<std::string>{"A", "B"});
}

}  // namespace hvd::config
