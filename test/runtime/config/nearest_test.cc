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

TEST_CASE("nearest_match finds the word of the same letters, and the one that begins so", "[unit][config]") {
  constexpr std::array<std::string_view, 8> kWords{"--rank-file", "--frank-file",  "--cycle-time-ms", "--autotune",
                                                   "--timeout",   "--timeline-at", "--autotune-log",  "-x"};
  CHECK(nearest_match("--rankfile", kWords) == "--rank-file");
  CHECK(nearest_match("--cycle_time_ms", kWords) == "--cycle-time-ms");
  CHECK(nearest_match("--cycletime", kWords) == "--cycle-time-ms");
  CHECK(nearest_match("--auto", kWords) == "--autotune");  // the other one is a longer form of it
  CHECK(nearest_match("--time", kWords).empty());          // which of the two?
  CHECK(nearest_match("--cyc", kWords).empty());           // too few letters
  CHECK(nearest_match("--autotuning-of-things", kWords).empty());
  CHECK(nearest_match("----", kWords).empty());
}

TEST_CASE("A prefix that all words have makes none of them near", "[unit][config]") {
  constexpr std::array<std::string_view, 3> kWords{"HOROVOD_TLS", "HOROVOD_SHM", "OTHER_SIZE"};
  CHECK(did_you_mean("HOROVOD_FOO", kWords, "HOROVOD_").empty());
  CHECK(did_you_mean("HOROVOD_SIZE", kWords, "HOROVOD_").empty());
  CHECK(did_you_mean("HOROVOD_TSL", kWords, "HOROVOD_") == "; did you mean HOROVOD_TLS?");
  CHECK(did_you_mean("SHM", kWords, "HOROVOD_").empty());
}

TEST_CASE("did_you_mean is a sentence or nothing", "[unit][config]") {
  constexpr std::array<std::string_view, 1> kWords{"HOROVOD_SIZE"};
  REQUIRE(did_you_mean("HOROVOD_SZIE", kWords) == "; did you mean HOROVOD_SIZE?");
  REQUIRE(did_you_mean("PATH", kWords).empty());
}

}  // namespace hvd::config
