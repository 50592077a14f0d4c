// A hostfile: whatever is accepted holds only harmless names and survives the round trip through a host list.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "launcher/hosts/host_list.h"
#include "runtime/base/check.h"

using namespace hvd::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto hosts = parse_hostfile(text, "f");
  if (!hosts.is_ok()) {
    HVD_CHECK(hosts.status().message().starts_with("f:"), "an error names the file");
    HVD_CHECK(hosts.status().message().size() < 1000, "an error is short");
    return 0;
  }
  for (const HostSpec& host : hosts.value()) {
    HVD_CHECK(host.slots >= 1 && host.slots <= kMaxSlotsPerHost && host.port >= 0 && host.port <= 65535, "in range");
    for (const std::string* part : {&host.name, &host.user}) {
      HVD_CHECK(!part->starts_with('-'), "no option of ssh");
      HVD_CHECK(part->find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-") ==
                    std::string::npos,
                "no word of a shell");
    }
  }
  const auto again = parse_host_list(host_list_text(hosts.value()));
  HVD_CHECK(again.is_ok() && again.value() == hosts.value(), "the round trip keeps the hosts");
  return 0;
}
