#include "runtime/transport/net/address_row.h"

#include <limits.h>
#include <unistd.h>

#include "runtime/base/input_file.h"

namespace hvd::transport {
namespace {

constexpr std::size_t kMaxText = 256;
constexpr std::size_t kMinEndpointSize = 4 + 4 + 2 + 4;  // an address, its length, the port, the length of a name

}  // namespace

HostIdentity HostIdentity::of_this_process() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, sizeof(name) - 1);
  return {name, hvd::boot_id(), link_target("/proc/self/ns/net"), link_target("/proc/self/ns/pid")};
}

Bytes AddressRow::encode() const {
  ByteWriter out;
  out.put(kProtocolVersion);
  out.put_string(host.host_name);
  out.put_string(host.boot_id);
  out.put_string(host.net_namespace);
  out.put_string(host.pid_namespace);
  out.put(static_cast<std::uint32_t>(endpoints.size()));
  for (const Endpoint& endpoint : endpoints) {
    out.put_bytes(endpoint.address.ip());
    out.put(endpoint.address.port());
    out.put_string(endpoint.interface);
  }
  return out.take();
}

Result<AddressRow> AddressRow::decode(ByteSpan bytes) {
  ByteReader in(bytes);
  const auto version = in.get<std::uint16_t>();
  if (!in.failed() && version != kProtocolVersion) {
    return Status::precondition("address row: the rank speaks protocol version " + std::to_string(version) +
                                ", this one " + std::to_string(kProtocolVersion) +
                                "; all ranks need the same version of this package");
  }
  AddressRow row;
  row.host.host_name = in.get_string(kMaxText);
  row.host.boot_id = in.get_string(kMaxText);
  row.host.net_namespace = in.get_string(kMaxText);
  row.host.pid_namespace = in.get_string(kMaxText);
  const std::uint32_t count = in.get_count(kMaxEndpoints, kMinEndpointSize);
  for (std::uint32_t i = 0; i < count && !in.failed(); ++i) {
    const ByteSpan ip = in.get_bytes(16);
    const auto port = in.get<std::uint16_t>();
    std::string interface = in.get_string(kMaxText);
    if (in.failed()) break;
    auto address = SocketAddress::from_ip(ip, port);
    if (!address.is_ok() || port == 0) {
      in.fail("endpoint " + std::to_string(i) + " has an address of " + std::to_string(ip.size()) + " bytes and port " +
              std::to_string(port));
      break;
    }
    row.endpoints.push_back({std::move(address).value(), std::move(interface)});
  }
  HVD_RETURN_IF_ERROR(in.finish("address row"));
  return row;
}

}  // namespace hvd::transport
