#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// The parts of the grammar in host_list.h that -H and hostfiles share. Pure; messages name the offending part.

inline constexpr std::size_t kMaxHostName = 253;  // RFC 1035

// What follows a place: `:a` or `:a:b` of an entry, not interpreted yet.
struct PlaceText {
  HostSpec host;                   // name and user; port and slots are still 0
  std::string_view first_number;   // "" when absent
  std::string_view second_number;  // "" when absent
};

// `[user@]host[:number[:number]]`
Result<PlaceText> parse_place(std::string_view text);

Result<int> parse_slots(std::string_view text);  // 1..4096
Result<int> parse_port(std::string_view text);   // 1..65535

// `place[:port]:slots`, or a place alone, which has one slot.
Result<HostSpec> parse_entry(std::string_view text);

// The hosts in the order in which they are first named. A host that is named again adds its slots to the first mention,
// because its name is the key by which ranks find their host. Externally synchronised.
class HostTable {
 public:
  // An error when two mentions of one host give it different users or ports, or when there are too many hosts or slots.
  Status add(const HostSpec& host);
  const std::vector<HostSpec>& hosts() const { return hosts_; }

 private:
  std::vector<HostSpec> hosts_;
  std::unordered_map<std::string, std::size_t> index_;  // of each name in hosts_
};

}  // namespace hvd::launcher
