#include "runtime/transport/net/address_row.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::transport;

namespace {

AddressRow sample() {
  AddressRow row;
  row.host = {"node-a", "boot", "net:[1]", "pid:[2]"};
  row.endpoints.push_back({SocketAddress::loopback(4711), "lo"});
  row.endpoints.push_back({SocketAddress::from_ip(Bytes(16, 0x20), 4711).value(), "eth0"});
  return row;
}

}  // namespace

TEST_CASE("An address row survives encoding", "[unit][transport]") {
  const AddressRow row = AddressRow::decode(sample().encode()).value();
  CHECK(row.host.host_name == "node-a");
  CHECK(row.host.boot_id == "boot");
  CHECK(row.host.net_namespace == "net:[1]");
  CHECK(row.host.pid_namespace == "pid:[2]");
  REQUIRE(row.endpoints.size() == 2);
  CHECK(row.endpoints[0].to_string() == "127.0.0.1:4711 (lo)");
  CHECK(row.endpoints[1].address.to_string() == "[2020:2020:2020:2020:2020:2020:2020:2020]:4711");
}

TEST_CASE("An address row cut anywhere is an error, never a crash", "[unit][transport]") {
  const Bytes whole = sample().encode();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(AddressRow::decode(ByteSpan(whole).first(size)).is_ok());
  }
  Bytes longer = whole;
  longer.push_back(0);
  CHECK_FALSE(AddressRow::decode(longer).is_ok());
}

TEST_CASE("An address row of another protocol version names both versions", "[unit][transport]") {
  Bytes bytes = sample().encode();
  bytes[0] = 9;
  const Status status = AddressRow::decode(bytes).status();
  CHECK(status.code() == StatusCode::kPrecondition);
  CHECK(status.message().find("version 9") != std::string::npos);
}

TEST_CASE("The identity of this process shares a network with itself only", "[unit][transport]") {
  const HostIdentity self = HostIdentity::of_this_process();
  CHECK_FALSE(self.boot_id.empty());
  CHECK(self.shares_network(self));
  HostIdentity other = self;
  other.net_namespace = "net:[0]";
  CHECK_FALSE(self.shares_network(other));
  const HostIdentity unknown;
  CHECK_FALSE(unknown.shares_network(unknown));
}
