#include "runtime/topology/rank_row.h"

namespace hvd::topology {

namespace {

constexpr std::string_view kVersion = "2";  // in version 1 a row was the transport's part alone
constexpr std::size_t kMaxVersion = 16;
constexpr std::size_t kMaxHost = 64;
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
  const ByteSpan addresses = in.get_bytes(kMaxAddresses);
  row.addresses.assign(addresses.begin(), addresses.end());
  HVD_RETURN_IF_ERROR(in.finish("row of a rank"));
  return row;
}

Result<HostMap> agree(const std::vector<RankRow>& rows) {
  std::vector<std::string> hosts;
  hosts.reserve(rows.size());
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
  }
  return HostMap::from_identities(hosts);
}

Bytes encode_agreement(const Result<HostMap>& hosts) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(hosts.status().code()));
  if (hosts.is_ok()) {
    out.put_raw(hosts.value().encode());
  } else {
    out.put_string(hosts.status().message().substr(0, kMaxReason));
  }
  return out.take();
}

Result<HostMap> decode_agreement(ByteSpan bytes, int size) {
  ByteReader in(bytes);
  const auto code = in.get<std::uint8_t>();
  if (in.failed()) return in.finish("agreement of all ranks");
  if (code == static_cast<std::uint8_t>(StatusCode::kOk)) return HostMap::decode(bytes.subspan(1), size);
  std::string reason = in.get_string(kMaxReason);
  if (code > static_cast<std::uint8_t>(StatusCode::kInternal)) in.fail("there is no status " + std::to_string(code));
  HVD_RETURN_IF_ERROR(in.finish("agreement of all ranks"));
  return Status(static_cast<StatusCode>(code), std::move(reason));
}

}  // namespace hvd::topology
