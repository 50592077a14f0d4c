#include "runtime/topology/rank_row.h"

#include <utility>

namespace hvd::topology {

namespace {

constexpr std::string_view kVersion = "3";  // 1: the transport's part alone; 2: without capabilities and socket
constexpr std::size_t kMaxVersion = 16;
constexpr std::size_t kMaxHost = 64;
constexpr std::size_t kMaxSocketName = 64;
constexpr std::size_t kMaxOptions = 32;
constexpr std::size_t kMaxOptionText = 256;
constexpr std::size_t kMaxAddresses = std::size_t{15} * 1024;
constexpr std::size_t kMinOptionSize = 4 + 4;  // two lengths
constexpr std::size_t kMaxReason = 4096;

}  // namespace

Bytes RankRow::encode() const {
  ByteWriter out;
  out.put_string(kVersion);
  out.put_string(host);
  out.put(static_cast<std::uint32_t>(options.size()));
  for (const Option& option : options) {
    out.put_string(option.name);
    out.put_string(option.value);
  }
  capabilities.encode(out);
  out.put_string(memory_socket);
  out.put_bytes(addresses);
  return out.take();
}

Result<RankRow> RankRow::decode(ByteSpan bytes) {
  ByteReader in(bytes);
  const std::string version = in.get_string(kMaxVersion);
  if (version != kVersion) {
    return Status::precondition("a rank's row has version \"" + version + "\", expected \"" + std::string(kVersion) +
                                "\"; all ranks need the same version of this package");
  }
  RankRow row;
  row.host = in.get_string(kMaxHost);
  const std::uint32_t count = in.get_count(kMaxOptions, kMinOptionSize);
  for (std::uint32_t i = 0; i < count && !in.failed(); ++i) {
    std::string name = in.get_string(kMaxOptionText);
    row.options.push_back({std::move(name), in.get_string(kMaxOptionText)});
  }
  row.capabilities = Capabilities::decode(in);
  row.memory_socket = in.get_string(kMaxSocketName);
  const ByteSpan addresses = in.get_bytes(kMaxAddresses);
  row.addresses.assign(addresses.begin(), addresses.end());
  HVD_RETURN_IF_ERROR(in.finish("row of a rank"));
  return row;
}

Result<Agreement> agree(const std::vector<RankRow>& rows) {
  std::vector<std::string> hosts;
  std::vector<Capabilities> capabilities;
  hosts.reserve(rows.size());
  capabilities.reserve(rows.size());
  const std::vector<RankRow::Option>& first = rows.front().options;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const std::vector<RankRow::Option>& mine = rows[rank].options;
    if (mine.size() != first.size()) {  // rows of one version have the same options
      return Status::precondition("rank " + std::to_string(rank) + " gives " + std::to_string(mine.size()) +
                                  " options, rank 0 gives " + std::to_string(first.size()));
    }
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (mine[i] == first[i]) continue;
      return Status::invalid_argument(first[i].name + " must be the same on all ranks: rank 0 has " + first[i].value +
                                      ", rank " + std::to_string(rank) + " has " + mine[i].value);
    }
    hosts.push_back(rows[rank].host);
    capabilities.push_back(rows[rank].capabilities);
  }
  return Agreement{HostMap::from_identities(hosts), CapabilityMap(capabilities)};
}

Bytes encode_agreement(const Result<Agreement>& agreed) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(agreed.status().code()));
  if (agreed.is_ok()) {
    agreed.value().capabilities.encode(out);
    out.put_raw(agreed.value().hosts.encode());
  } else {
    out.put_string(agreed.status().message().substr(0, kMaxReason));
  }
  return out.take();
}

Result<Agreement> decode_agreement(ByteSpan bytes, int size) {
  ByteReader in(bytes);
  const auto code = in.get<std::uint8_t>();
  if (in.failed()) return in.finish("agreement of all ranks");
  if (code == static_cast<std::uint8_t>(StatusCode::kOk)) {
    auto capabilities = CapabilityMap::decode(in, size);
    if (!capabilities) return in.finish("agreement of all ranks");
    HVD_ASSIGN_OR_RETURN(HostMap hosts, HostMap::decode(in.take(in.remaining()), size));
    return Agreement{std::move(hosts), std::move(*capabilities)};
  }
  std::string reason = in.get_string(kMaxReason);
  if (code > static_cast<std::uint8_t>(StatusCode::kInternal)) in.fail("there is no status " + std::to_string(code));
  HVD_RETURN_IF_ERROR(in.finish("agreement of all ranks"));
  return Status(static_cast<StatusCode>(code), std::move(reason));
}

}  // namespace hvd::topology
