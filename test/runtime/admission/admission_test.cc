#include "runtime/admission/admission.h"

#include <catch2/catch.hpp>

using namespace hvd::admission;

TEST_CASE("Admission drops the oldest stranger of a source at its bound", "[unit][admission]") {
  Admission admission({.connections = 100, .room = 10, .per_source = 2});
  CHECK_FALSE(admission.arrive(1, "a").evicted);
  CHECK_FALSE(admission.arrive(2, "a").evicted);
  CHECK_FALSE(admission.arrive(3, "b").evicted);
  CHECK(admission.arrive(4, "a").evicted == 1u);
  CHECK(admission.arrive(5, "a").evicted == 2u);
  CHECK(admission.strangers() == 3);
  admission.leave(1);  // the end of an evicted connection is no second loss
  CHECK(admission.total() == 3);
}

TEST_CASE("Admission does not count proven connections against their source", "[unit][admission]") {
  Admission admission({.connections = 100, .room = 10, .per_source = 1});
  for (ConnectionId id = 1; id <= 20; ++id) {
    CHECK_FALSE(admission.arrive(id, "a").evicted);
    CHECK(admission.prove(id));
    CHECK_FALSE(admission.prove(id));
  }
  CHECK(admission.total() == 20);
  CHECK(admission.strangers() == 0);
}

TEST_CASE("Strangers never push out who is introduced; recordings push out only each other", "[unit][admission]") {
  Admission admission({.connections = 100, .room = 10, .per_source = 2});
  admission.arrive(1, "a");
  CHECK_FALSE(admission.introduce(1));
  for (ConnectionId id = 2; id <= 50; ++id) CHECK(admission.arrive(id, "a").evicted != 1u);
  CHECK_FALSE(admission.introduce(49));
  CHECK(admission.introduced() == 2);
  CHECK(admission.introduce(50) == 1u);
  CHECK_FALSE(admission.introduce(50));  // once
  CHECK_FALSE(admission.introduce(7));   // evicted long ago
  CHECK(admission.prove(50));
  CHECK(admission.introduced() == 1);
}

TEST_CASE("Admission takes room from the source that has most, so a crowd pushes out itself", "[unit][admission]") {
  Admission admission({.connections = 100, .room = 4, .per_source = 3});
  admission.arrive(1, "victim");
  admission.arrive(2, "crowd");
  admission.arrive(3, "crowd");
  admission.arrive(4, "crowd");
  CHECK(admission.arrive(5, "third").evicted == 2u);
  CHECK(admission.arrive(6, "crowd").evicted == 3u);
}

TEST_CASE("Among sources that have equally many the one that waits longest goes first", "[unit][admission]") {
  Admission admission({.connections = 100, .room = 3, .per_source = 3});
  admission.arrive(1, "z");
  admission.arrive(2, "a");
  admission.arrive(3, "m");
  CHECK(admission.arrive(4, "b").evicted == 1u);
  CHECK(admission.evict_stranger() == 2u);
  CHECK(admission.evict_stranger() == 3u);
  CHECK(admission.evict_stranger() == 4u);
  CHECK_FALSE(admission.evict_stranger());
}

TEST_CASE("Admission turns away only where no stranger is left to go", "[unit][admission]") {
  Admission admission({.connections = 2, .room = 10, .per_source = 10});
  CHECK(admission.arrive(1, "a").admitted);
  admission.prove(1);
  CHECK(admission.arrive(2, "a").admitted);
  CHECK(admission.arrive(3, "b").evicted == 2u);
  admission.prove(3);
  CHECK_FALSE(admission.arrive(4, "c").admitted);
  CHECK(admission.total() == 2);
  admission.leave(1);
  CHECK(admission.arrive(5, "c").admitted);
}

TEST_CASE("A batch of arrivals is smaller than the share of a source, whatever the size of the job",
          "[unit][admission]") {
  for (const int ranks : {1, 2, 64, 1000}) {
    const Limits limits = Limits::for_ranks(ranks);
    CHECK(limits.per_source > static_cast<std::size_t>(kAcceptsPerTurn));
    CHECK(limits.per_source >= static_cast<std::size_t>(2 * ranks));  // all ranks of one host at once
    CHECK(limits.room > limits.per_source);
  }
}

TEST_CASE("Sources are hosts, not addresses", "[unit][admission]") {
  CHECK(source_of("127.0.0.1") == source_of("127.9.9.9"));
  CHECK(source_of("::1") == source_of("127.0.0.1"));
  CHECK(source_of("10.0.0.1") != source_of("10.0.0.2"));
  CHECK(source_of("2001:db8::1") == source_of("2001:db8::8000:0:0:1"));
  CHECK(source_of("2001:db8::1") != source_of("2001:db8:0:1::1"));
  CHECK(source_of("fe80::1%eth0") == source_of("fe80::2%eth0"));
}
