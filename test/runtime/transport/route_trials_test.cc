#include "runtime/transport/route_trials.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <thread>

#include "fabric_group.h"
#include "runtime/base/fd.h"

using namespace hvd;
using namespace hvd::transport;
using hvd::test::FabricGroup;

namespace {

constexpr Millis kHangs{60000};

// A port of loopback that is taken; without `listens` nobody is there to answer, with `reuse` others may bind it
// meanwhile.
struct TakenPort {
  explicit TakenPort(bool listens, bool reuse = false) : fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = reuse ? 1 : 0;
    REQUIRE(setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
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
    // Not all begin with the same.
    for (int i = 0; i < 2; ++i) CHECK(tries[static_cast<std::size_t>(i)].rank == (rank + 1 + i) % 3);
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

TEST_CASE("Who accepts and hangs up is told from who gives no answer, also when time is up", "[multi][transport]") {
  FabricGroup group(2);
  const TakenPort program(true);
  // Once: after that it is silent, so that time is up during another round.
  const std::jthread hangs_up([&] {
    pollfd entry{program.fd.get(), POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(kHangs.count())) == 1) {
      const Fd accepted(accept(program.fd.get(), nullptr, nullptr));
    }
  });
  AddressRow row = row_of(*group.fabrics[1]);
  row.endpoints = {program.endpoint};
  group.rows.set(1, row.encode());
  const auto tries = group.fabrics[0]->try_routes(Millis(5000), Deadline::after(kHangs));
  REQUIRE(tries.is_ok());
  REQUIRE(tries.value().size() == 1);
  INFO(tries.value()[0].error);
  CHECK(tries.value()[0].outcome == RouteTry::Outcome::kHungUp);
}

TEST_CASE("Ports are free that are taken by nobody, or that a listener has left", "[multi][transport]") {
  ListenOptions options;
  const auto free = [&](const TakenPort& port) {
    options.ports = {port.endpoint.address.port(), port.endpoint.address.port()};
    return count_free_ports(options, 4096).value();
  };
  const TakenPort listens(true);
  CHECK(free(listens) == 0);
  const TakenPort left(false, true);  // nobody else is given it meanwhile
  CHECK(free(left) == 1);
  REQUIRE(listen(left.fd.get(), 1) == 0);  // it was let go of
  CHECK(free(left) == 0);
  options.loopback_only = false;
  options.interfaces = {"none0"};
  CHECK_FALSE(count_free_ports(options, 1).is_ok());
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
