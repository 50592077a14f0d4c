#include "rendezvous/kv/store.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::rendezvous;

using Waiters = std::vector<WaiterId>;

TEST_CASE("Store keeps a value under its scope and key", "[unit][store]") {
  Store store;
  CHECK(store.find("s", "k") == nullptr);
  CHECK(store.put("s", "k", as_bytes("v")).value() == Waiters{});
  REQUIRE(store.find("s", "k") != nullptr);
  CHECK(as_text(*store.find("s", "k")) == "v");
  CHECK(store.find("s2", "k") == nullptr);
  CHECK(store.find("s", "k2") == nullptr);
}

TEST_CASE("Store takes the same value again and refuses another one by name", "[unit][store]") {
  Store store;
  REQUIRE(store.put("s", "k", as_bytes("v")).is_ok());
  CHECK(store.put("s", "k", as_bytes("v")).is_ok());
  const Status error = store.put("s", "k", as_bytes("other")).status();
  CHECK(error.code() == StatusCode::kPrecondition);
  CHECK_THAT(error.message(),
             Catch::Contains("s/k") && Catch::Contains("1 bytes there") && Catch::Contains("5 bytes sent"));
  CHECK(as_text(*store.find("s", "k")) == "v");
  CHECK(store.key_count() == 1);
}

TEST_CASE("Store releases exactly the waiters of the key that appears", "[unit][store]") {
  Store store;
  REQUIRE(store.watch("s", "k", 1).is_ok());
  REQUIRE(store.watch("s", "k", 2).is_ok());
  REQUIRE(store.watch("s", "k2", 3).is_ok());
  REQUIRE(store.watch("s", "k", 4).is_ok());
  store.unwatch(4);
  store.unwatch(99);
  CHECK(store.put("s", "k", as_bytes("v")).value() == Waiters{1, 2});
  CHECK(store.put("s", "k", as_bytes("v")).value() == Waiters{});
  CHECK(store.waiter_count() == 1);
  CHECK(store.put("s", "k2", as_bytes("v")).value() == Waiters{3});
  CHECK(store.waiter_count() == 0);
}

TEST_CASE("Store holds its limits and counts back what is dropped", "[unit][store]") {
  const std::size_t one = Store::kEntryOverhead + 2 + 10;  // scope, key and a value of 10 bytes
  Store store({.value_bytes = 10, .total_bytes = 2 * one, .keys = 3, .waiters = 1});
  const Bytes ten(10, 1);
  CHECK(store.put("s", "a", Bytes(11)).status().code() == StatusCode::kInvalidArgument);
  CHECK(store.put("s", "a", ten).is_ok());
  CHECK(store.put("t", "b", ten).is_ok());
  CHECK(store.byte_count() == 2 * one);
  CHECK_THAT(store.put("s", "c", {}).status().message(), Catch::Contains("does not fit") && Catch::Contains("bytes"));
  store.drop_scopes("t");
  CHECK(store.byte_count() == one);
  CHECK(store.put("s", "c", ten).is_ok());

  Store few({.keys = 1});
  CHECK(few.put("s", "a", {}).is_ok());
  CHECK_THAT(few.put("s", "b", {}).status().message(), Catch::Contains("1 keys"));
  CHECK(few.put("s", "a", {}).is_ok());

  CHECK(store.watch("s", "x", 1).is_ok());
  CHECK(store.watch("s", "y", 2).code() == StatusCode::kPrecondition);
}

TEST_CASE("drop_scopes takes a scope and what is below it, and nothing that only looks alike", "[unit][store]") {
  Store store;
  for (const char* scope :
       {"epoch.1", "epoch.1.gloo", "epoch.1.x.y", "epoch.10", "epoch.10.gloo", "epoch.1-a", "epoch", "other"}) {
    REQUIRE(store.put(scope, "k", as_bytes("v")).is_ok());
    REQUIRE(store.watch(scope, "w", store.key_count()).is_ok());
  }
  CHECK(store.drop_scopes("epoch.1") == Waiters{1, 2, 3});
  for (const char* gone : {"epoch.1", "epoch.1.gloo", "epoch.1.x.y"}) CHECK(store.find(gone, "k") == nullptr);
  for (const char* kept : {"epoch.10", "epoch.10.gloo", "epoch.1-a", "epoch", "other"})
    CHECK(store.find(kept, "k") != nullptr);
  CHECK(store.key_count() == 5);
  CHECK(store.waiter_count() == 5);
  for (const char* scope : {"epoch.10", "epoch.1-a", "epoch", "other"}) store.drop_scopes(scope);
  CHECK(store.byte_count() == 0);
  CHECK(store.waiter_count() == 0);
}
