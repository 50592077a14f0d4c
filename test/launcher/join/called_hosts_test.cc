#include "launcher/join/called_hosts.h"

#include <catch2/catch.hpp>
#include <utility>

using namespace hvd;
using namespace hvd::launcher;

namespace {

JoinRequest request(const std::string& name, const std::string& node = "") {
  return {.version = HVD_VERSION, .name = name, .node = node};
}

std::string names(const CalledHosts& called) {
  std::string all;
  for (const CalledHost& host : called.hosts()) all += host.name + " ";
  return all;
}

}  // namespace

TEST_CASE("a static job has its hosts for good", "[unit][join]") {
  CalledHosts called(2, false);
  CHECK(called.ask(request("n10"), "192.0.2.1").empty());
  CHECK(called.ask(request("n7"), "192.0.2.2").empty());
  called.left("n7");  // it is waited for again
  CHECK_FALSE(called.is_complete());
  called.not_proven("192.0.2.9");
  CHECK(called.progress() ==
        "1 of 2 hosts have joined (n10); 1 connection did not have the token, the last from 192.0.2.9");
  CHECK(called.ask(request("n2"), "192.0.2.3").empty());
  CHECK(called.is_complete());
  CHECK(called.ask(request("n3"), "192.0.2.4") == "the job has its 2 hosts already");
  called.begin();
  called.left("n2");
  CHECK(called.take("n10"));
  CHECK_FALSE(called.take("n10"));
  CHECK_FALSE(called.let_go("n10"));
  CHECK(names(called) == "n2 n10 ");
  CHECK(called.ask(request("n10"), "192.0.2.1").ends_with("has joined already, and the job has begun"));
}

TEST_CASE("an elastic job has those whose connections last", "[unit][join]") {
  CalledHosts called(1, true);
  CHECK(called.ask(request("n1"), "192.0.2.1").empty());
  CHECK(called.ask(request("n2"), "192.0.2.2").empty());  // more than it begins with
  called.begin();
  CHECK(called.take("n1"));
  CHECK_FALSE(called.take("n3"));
  CHECK_FALSE(called.let_go("n2"));  // nobody has taken it
  CHECK(called.ask(request("n1"), "192.0.2.3") ==
        "a host of the name n1 has joined already, from 192.0.2.1; --host-name gives this one another name");
  CHECK(called.let_go("n1"));
  CHECK(called.ask(request("n1"), "192.0.2.3").empty());
  CHECK_FALSE(called.let_go("n1"));  // that is another one, which the job does not have
  called.left("n2");
  CHECK(names(called) == "n1 ");
  CHECK(called.take("n1"));
  called.end();
  CHECK(called.ask(request("n4"), "192.0.2.4") == "the job has ended");
}

TEST_CASE("parts of one machine follow the first of them, by name", "[unit][join]") {
  CalledHosts called(9, false);
  for (const auto& [name, node] : {std::pair{"t10", "b"}, {"t2", "b"}, {"t1", "a"}, {"t0", "b"}, {"alone", ""}}) {
    CHECK(called.ask(request(name, node), "192.0.2.1").empty());
  }
  CHECK(names(called) == "alone t0 t2 t10 t1 ");
  CHECK(spec_of(called.hosts()[1], 3) == HostSpec{"t0", "", 0, 3, "b"});
}
