#include "runtime/transport/route_trials.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "fabric_group.h"
#include "runtime/base/fd.h"

using namespace hvd;
using namespace hvd::transport;
using hvd::test::FabricGroup;

namespace {

constexpr Millis kHangs{60000};

// A port of loopback that is taken; without `listens` nobody is there to answer.
struct TakenPort {
  explicit TakenPort(bool listens) : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage raw{};
    socklen_t size = SocketAddress::loopback(0).to_sockaddr(raw);
    REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&raw), size) == 0);
    if (listens) REQUIRE(listen(fd.get(), 64) == 0);
    REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&raw), &size) == 0);
    endpoint = {SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&raw)).value(), "lo"};
  }
  Fd fd;
  Endpoint endpoint;
};

AddressRow row_of(const Fabric& fabric) { return AddressRow::decode(fabric.address_row()).value(); }

}  // namespace

TEST_CASE("Each rank reaches each other, and says how long a way it is", "[multi][transport]") {
  FabricGroup group(3);
  std::vector<std::vector<RouteTry>> found(3);
  hvd::test::run_ranks(3, [&](int rank) {
    auto tries = group.fabrics[static_cast<std::size_t>(rank)]->try_routes(kHangs, Deadline::after(kHangs));
    if (tries.is_ok()) found[static_cast<std::size_t>(rank)] = std::move(tries).value();
  });
  for (int rank = 0; rank < 3; ++rank) {
    const auto& tries = found[static_cast<std::size_t>(rank)];
    REQUIRE(tries.size() == 2);
    CHECK(tries[0].rank == (rank == 0 ? 1 : 0));
    CHECK(tries[1].rank == (rank == 2 ? 1 : 2));
    for (const RouteTry& one : tries) {
      INFO(one.error);
      CHECK(one.outcome == RouteTry::Outcome::kReached);
      CHECK(one.round_trip.count() > 0);
      CHECK(one.interface == "lo");
      CHECK(one.error.empty());
    }
  }
}

TEST_CASE("Every address is tried by itself, and what is there is told apart", "[multi][transport]") {
  FabricGroup group(2);
  auto stranger = Fabric::create({.rank = 1, .size = 2}).value();
  hvd::test::MapRowSource nobody;
  REQUIRE(stranger->open(1, hvd::test::test_secret(99), nobody).is_ok());
  const TakenPort closed(false);
  const TakenPort silent(true);
  AddressRow row = row_of(*group.fabrics[1]);
  const Endpoint good = row.endpoints.front();
  row.endpoints = {closed.endpoint, row_of(*stranger).endpoints.front(), good};
  group.rows.set(1, row.encode());
  auto tries = group.fabrics[0]->try_routes(kHangs, Deadline::after(kHangs));
  REQUIRE(tries.is_ok());
  REQUIRE(tries.value().size() == 3);
  CHECK(tries.value()[0].outcome == RouteTry::Outcome::kNoConnection);
  CHECK(tries.value()[1].outcome == RouteTry::Outcome::kRefused);
  CHECK(tries.value()[2].outcome == RouteTry::Outcome::kReached);
  CHECK(tries.value()[2].address == good.address.to_string());
  for (std::size_t i = 0; i < 2; ++i) CHECK_FALSE(tries.value()[i].error.empty());

  // Where nobody says a word, it ends with the limit of the address, not with that of all.
  row.endpoints = {silent.endpoint};
  group.rows.set(1, row.encode());
  tries = group.fabrics[0]->try_routes(Millis(50), Deadline::after(kHangs));
  REQUIRE(tries.is_ok());
  REQUIRE(tries.value().size() == 1);
  CHECK(tries.value()[0].outcome == RouteTry::Outcome::kNoAnswer);
  CHECK_FALSE(tries.value()[0].error.empty());
}

TEST_CASE("A row without an address that could be tried is an answer, too", "[multi][transport]") {
  FabricGroup group(2);
  AddressRow row = row_of(*group.fabrics[1]);
  row.host.boot_id = "of another machine";  // whose loopback is not ours
  group.rows.set(1, row.encode());
  const auto tries = group.fabrics[0]->try_routes(kHangs, Deadline::after(kHangs));
  REQUIRE(tries.is_ok());
  REQUIRE(tries.value().size() == 1);
  CHECK(tries.value()[0].address.empty());
  CHECK(tries.value()[0].outcome == RouteTry::Outcome::kNoConnection);
  CHECK(tries.value()[0].error.find(row.endpoints.front().to_string()) != std::string::npos);
}
