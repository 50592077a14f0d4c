#include <catch2/catch.hpp>

#include "runtime/topology/membership.h"
#include "runtime/topology/rank_row.h"

namespace hvd::topology {
namespace {

std::vector<int> ranks_on(const HostMap& map, int host) {
  const auto ranks = map.ranks_on(host);
  return {ranks.begin(), ranks.end()};
}

// One letter for each rank.
HostMap map_of(const std::string& hosts) {
  std::vector<std::string> identities;
  for (const char host : hosts) identities.emplace_back(1, host);
  return HostMap::from_identities(identities);
}

TEST_CASE("HostMap: hosts are numbered by their first ranks, whatever their identities", "[unit][topology]") {
  const HostMap map = map_of("zzaaazq");
  CHECK(map.size() == 7);
  CHECK(map.hosts() == 3);
  CHECK(ranks_on(map, 0) == std::vector<int>{0, 1, 5});
  CHECK(ranks_on(map, 1) == std::vector<int>{2, 3, 4});
  CHECK(ranks_on(map, 2) == std::vector<int>{6});
  CHECK(map.host_of(5) == 0);
  CHECK_FALSE(map.is_homogeneous());
  CHECK_FALSE(map.is_host_by_host());
  CHECK(map_of("aaaabbbc").is_host_by_host());
  CHECK_FALSE(map_of("aaaabbbc").is_homogeneous());
  CHECK(map_of("abab").is_homogeneous());
  CHECK_FALSE(map_of("abab").is_host_by_host());
  CHECK(map_of("aabb").is_homogeneous());
  CHECK(map_of("aaa") == HostMap::one_host(3));
  CHECK(HostMap::one_host(3).is_homogeneous());
}

TEST_CASE("HostMap: a map comes back from its bytes, which are few where hosts are equal", "[unit][topology]") {
  for (const char* hosts : {"a", "aaaa", "aaaabbbc", "abcabc", "abab", "aabbccddaabbccdd", "abbacca"}) {
    const HostMap map = map_of(hosts);
    const Bytes bytes = map.encode();
    const auto again = HostMap::decode(bytes, map.size());
    REQUIRE(again.is_ok());
    CHECK(again.value() == map);
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
      CHECK_FALSE(HostMap::decode(ByteSpan(bytes).first(cut), map.size()).is_ok());
    }
    CHECK_FALSE(HostMap::decode(bytes, map.size() + 1).is_ok());
  }
  std::vector<std::string> many;
  for (int rank = 0; rank < 27360; ++rank) many.push_back(std::to_string(rank / 4));
  CHECK(HostMap::from_identities(many).encode().size() == 12);
  // A host that nobody has named before, no ranks, and more ranks than there are.
  for (const Bytes& wrong : {Bytes{1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 2, 0}, Bytes{1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0},
                             Bytes{1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255}}) {
    CHECK(HostMap::decode(wrong, 2).status().message().find("block 0") != std::string::npos);
  }
}

TEST_CASE("Rows: ranks agree on hosts, or hear the first option that differs", "[unit][topology]") {
  RankRow row{"host a", {{"X", "1"}, {"Y", "0"}}, {}, "socket", {1, 2, 3}};
  row.capabilities.set(Capability::kSharedMemory, 7);
  const Bytes bytes = row.encode();
  const auto again = RankRow::decode(bytes);
  REQUIRE(again.is_ok());
  CHECK(again.value().host == row.host);
  CHECK(again.value().options == row.options);
  CHECK(again.value().capabilities == row.capabilities);
  CHECK(again.value().memory_socket == row.memory_socket);
  CHECK(again.value().addresses == row.addresses);
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) CHECK_FALSE(RankRow::decode(ByteSpan(bytes).first(cut)).is_ok());
  const Status newer = RankRow::decode(Bytes{1, 0, 0, 0, '2'}).status();
  CHECK(newer.message().find("version \"2\", expected \"3\"") != std::string::npos);

  RankRow other = row;
  other.host = "host b";
  other.capabilities = {};
  const auto agreed = agree({row, row, other});
  REQUIRE(agreed.is_ok());
  CHECK(agreed.value().hosts == map_of("aab"));
  CHECK(agreed.value().capabilities.of(1) == row.capabilities);
  CHECK(agreed.value().capabilities.of(2) == other.capabilities);
  CHECK(decode_agreement(encode_agreement(agreed), 3).value() == agreed.value());
  const Bytes encoded = encode_agreement(agreed);
  for (std::size_t cut = 0; cut < encoded.size(); ++cut)
    CHECK_FALSE(decode_agreement(ByteSpan(encoded).first(cut), 3).is_ok());
  other.options[1].value = "1";
  const auto differs = agree({row, row, other});
  CHECK(differs.status().message() == "Y must be the same on all ranks: rank 0 has 0, rank 2 has 1");
  const Status heard = decode_agreement(encode_agreement(differs), 3).status();
  CHECK(heard.code() == StatusCode::kInvalidArgument);
  CHECK(heard.message() == differs.status().message());
  CHECK_FALSE(decode_agreement(Bytes{}, 3).is_ok());
  CHECK_FALSE(decode_agreement(Bytes{99, 0, 0, 0, 0}, 3).is_ok());
}

TEST_CASE("Capabilities: what ranks have in common follows from one map, small where they are alike",
          "[unit][topology]") {
  Capabilities able;
  able.set(Capability::kSharedMemory, 1);
  const CapabilityMap map(std::vector<Capabilities>{able, able, {}, able});
  CHECK(map.size() == 4);
  CHECK(map.of(1)[Capability::kSharedMemory] == 1);
  CHECK(map.of(2)[Capability::kSharedMemory] == 0);
  CHECK(map.first_without(Capability::kSharedMemory, std::vector<int>{0, 2, 3}) == 2);
  CHECK(map.first_without(Capability::kSharedMemory, std::vector<int>{0, 1, 3}) == std::nullopt);

  const auto encoded = [](const CapabilityMap& one) {
    ByteWriter out;
    one.encode(out);
    return out.take();
  };
  const auto decoded = [](const Bytes& bytes, int size) {
    ByteReader in(bytes);
    auto one = CapabilityMap::decode(in, size);
    return in.finish("capabilities").is_ok() ? one : std::nullopt;
  };
  CHECK(decoded(encoded(map), 4) == map);
  CHECK_FALSE(decoded(encoded(map), 3).has_value());
  CHECK_FALSE(decoded(encoded(map), 5).has_value());
  CHECK(encoded(CapabilityMap(std::vector<Capabilities>(27360, able))).size() == 8 + Capabilities::kEncodedSize);
}

}  // namespace
}  // namespace hvd::topology
