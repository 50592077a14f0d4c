#include "runtime/config/nearest.h"

#include <catch2/catch.hpp>

#include <array>

namespace hvd::config {

TEST_CASE("edit_distance counts inserts, deletes, replacements and swaps of neighbours", "[unit][config]") {
  REQUIRE(edit_distance("", "") == 0);
  REQUIRE(edit_distance("abc", "") == 3);
  REQUIRE(edit_distance("", "abc") == 3);
  REQUIRE(edit_distance("abc", "abc") == 0);
  REQUIRE(edit_distance("abc", "abd") == 1);
  REQUIRE(edit_distance("abc", "acb") == 1);  // a swap is one edit
  REQUIRE(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("nearest_match finds the word that was meant", "[unit][config]") {
  constexpr std::array<std::string_view, 3> kWords{"--hosts", "--hostfile", "--verbose"};
  REQUIRE(nearest_match("--host", kWords) == "--hosts");
  REQUIRE(nearest_match("--verbsoe", kWords) == "--verbose");
  REQUIRE(nearest_match("--hostflie", kWords) == "--hostfile");
  REQUIRE(nearest_match("--zzzzzz", kWords).empty());
  REQUIRE(nearest_match("", kWords).empty());
  REQUIRE(nearest_match(std::string(100'000, 'x'), kWords).empty());
}

TEST_CASE("did_you_mean is a sentence or nothing", "[unit][config]") {
  constexpr std::array<std::string_view, 1> kWords{"HOROVOD_SIZE"};
  REQUIRE(did_you_mean("HOROVOD_SZIE", kWords) == "; did you mean HOROVOD_SIZE?");
  REQUIRE(did_you_mean("PATH", kWords).empty());
}

}  // namespace hvd::config
