#include <algorithm>
#include <catch2/catch.hpp>

#include "launcher/agent/host_ranks.h"

using namespace hvd::launcher;

TEST_CASE("This host has a loopback interface and cores", "[unit][agent]") {
  const HostFacts here = facts_of_this_host();
  CHECK(std::count(here.interfaces.begin(), here.interfaces.end(), "lo") == 1);
  CHECK(here.cores >= 1);
}
