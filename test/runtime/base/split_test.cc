#include "runtime/base/split.h"

#include <catch2/catch.hpp>

using namespace hvd;

TEST_CASE("A list in a text is split into its pieces, empty ones among them", "[unit][base]") {
  using Pieces = std::vector<std::string_view>;
  CHECK(split("a,b c,d", ',') == Pieces{"a", "b c", "d"});
  CHECK(split("a,b", '|') == Pieces{"a,b"});
  CHECK(split(",a,,", ',') == Pieces{"", "a", "", ""});
  CHECK(split("", ',') == Pieces{""});
}
