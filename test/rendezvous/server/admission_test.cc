#include "rendezvous/server/admission.h"

#include <catch2/catch.hpp>

using namespace hvd::rendezvous;

TEST_CASE("Admission drops the oldest unauthenticated connection of a source at its bound",
          "[unit][admission]") {
  Admission admission({.connections = 100, .unauthenticated = 10, .unauthenticated_per_source = 2});
  CHECK_FALSE(admission.arrive(1, "a").evicted);
  CHECK_FALSE(admission.arrive(2, "a").evicted);
  CHECK_FALSE(admission.arrive(3, "b").evicted);
  CHECK(admission.arrive(4, "a").evicted == 1u);
  CHECK(admission.arrive(5, "a").evicted == 2u);
  CHECK(admission.unauthenticated() == 3);
  admission.leave(1);  // the end of an evicted connection is no second loss
  CHECK(admission.total() == 3);
}

TEST_CASE("Admission does not count authenticated connections against their source",
          "[unit][admission]") {
  Admission admission({.connections = 100, .unauthenticated = 10, .unauthenticated_per_source = 1});
  for (std::uint64_t id = 1; id <= 20; ++id) {
    CHECK_FALSE(admission.arrive(id, "a").evicted);
    CHECK(admission.authenticate(id));
    CHECK_FALSE(admission.authenticate(id));
  }
  CHECK(admission.total() == 20);
  CHECK(admission.unauthenticated() == 0);
}

TEST_CASE("Admission takes room from the source that has most, so a crowd pushes out itself",
          "[unit][admission]") {
  Admission admission({.connections = 100, .unauthenticated = 4, .unauthenticated_per_source = 3});
  admission.arrive(1, "victim");
  admission.arrive(2, "crowd");
  admission.arrive(3, "crowd");
  admission.arrive(4, "crowd");
  CHECK(admission.arrive(5, "third").evicted == 2u);
  CHECK(admission.arrive(6, "crowd").evicted == 3u);
}

TEST_CASE("Admission turns away only when every connection is authenticated", "[unit][admission]") {
  Admission admission({.connections = 2, .unauthenticated = 10, .unauthenticated_per_source = 10});
  CHECK(admission.arrive(1, "a").admitted);
  admission.authenticate(1);
  CHECK(admission.arrive(2, "a").admitted);
  CHECK(admission.arrive(3, "b").evicted == 2u);
  admission.authenticate(3);
  CHECK_FALSE(admission.arrive(4, "c").admitted);
  CHECK(admission.total() == 2);
  admission.leave(1);
  CHECK(admission.arrive(5, "c").admitted);
}

TEST_CASE("Sources are hosts, not addresses", "[unit][admission]") {
  CHECK(source_of("127.0.0.1") == source_of("127.9.9.9"));
  CHECK(source_of("::1") == source_of("127.0.0.1"));
  CHECK(source_of("10.0.0.1") != source_of("10.0.0.2"));
  CHECK(source_of("2001:db8::1") == source_of("2001:db8::ffff:1"));
  CHECK(source_of("2001:db8::1") != source_of("2001:db8:0:1::1"));
  CHECK(source_of("fe80::1%eth0") == source_of("fe80::2%eth0"));
}
