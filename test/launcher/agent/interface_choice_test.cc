#include "launcher/agent/interface_choice.h"

#include <algorithm>
#include <catch2/catch.hpp>

using namespace hvd::launcher;

TEST_CASE("A host takes the first of the chosen interfaces that it has", "[unit][agent]") {
  CHECK(choose_interface("eth0", {"lo", "eth0"}).value() == "eth0");
  CHECK(choose_interface("ib0,eth0,lo", {"lo", "eth0"}).value() == "eth0");
  CHECK(choose_interface("eth0,ib0", {"lo", "ib0"}).value() == "ib0");
}

TEST_CASE("A host without any of the chosen interfaces says what it has", "[unit][agent]") {
  CHECK(choose_interface("eth0,ib", {"lo", "ib0"}).status().message() ==
        "it has none of the network interfaces 'eth0,ib' (--network-interfaces or HOROVOD_GLOO_IFACE); it has lo, ib0");
  CHECK_FALSE(choose_interface("eth0", {}).is_ok());
}

TEST_CASE("This host has a loopback interface", "[unit][agent]") {
  const auto here = interfaces_here();
  CHECK(std::count(here.begin(), here.end(), "lo") == 1);
}
