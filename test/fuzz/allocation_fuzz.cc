// Hosts as batch systems write them: what is accepted is bounded, and a list that -H reads back.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/allocation.h"
#include "launcher/hosts/host_list.h"
#include "runtime/base/check.h"

using namespace hvd::launcher;

namespace {

void check(const hvd::Result<std::vector<HostSpec>>& hosts) {
  if (!hosts.is_ok()) return;
  HVD_CHECK(!hosts.value().empty() && hosts.value().size() <= kMaxHosts, "as many hosts as allowed");
  const auto again = parse_host_list(host_list_text(hosts.value()));
  HVD_CHECK(again.is_ok() && again.value() == hosts.value(), "the round trip keeps the hosts");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto names = expand_node_list(text);
  HVD_CHECK(!names.is_ok() || names.value().size() <= kMaxHosts, "as many names as allowed");
  HVD_CHECK(names.is_ok() || names.status().message().size() < 1000, "an error is short");
  if (names.is_ok() && names.value().size() < 1000) {
    check(parse_slurm_nodes(text, "2(x" + std::to_string(names.value().size()) + ")"));
  }
  check(parse_slurm_nodes("n[1-3]", text));
  check(parse_host_counts(text));
  check(parse_pe_hostfile(text));
  return 0;
}
