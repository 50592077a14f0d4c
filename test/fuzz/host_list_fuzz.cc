// The value of -H: accepted lists survive the round trip, and mean the same as a hostfile with an entry per line, and
// as what a discovery script prints. The latter also takes the bytes themselves.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/elastic/discovery.h"
#include "launcher/hosts/host_list.h"
#include "runtime/base/check.h"

using namespace hvd::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto discovered = parse_discovered_hosts(text, 2);
  HVD_CHECK(discovered.is_ok() || discovered.status().message().size() < 1000, "an error is short");
  const auto hosts = parse_host_list(text);
  if (!hosts.is_ok()) {
    HVD_CHECK(hosts.status().message().size() < 1000, "an error is short");
    return 0;
  }
  const std::string list = host_list_text(hosts.value());
  const auto again = parse_host_list(list);
  HVD_CHECK(again.is_ok() && again.value() == hosts.value(), "the round trip keeps the hosts");
  std::string lines = list;
  std::replace(lines.begin(), lines.end(), ',', '\n');
  const auto file = parse_hostfile(lines, "f");
  HVD_CHECK(file.is_ok() && file.value() == hosts.value(), "a hostfile with the same entries is the same");
  const auto printed = parse_discovered_hosts(lines, 1);
  HVD_CHECK(lines.size() > kMaxDiscoveryBytes || (printed.is_ok() && printed.value() == hosts.value()), "and printed");
  return 0;
}
