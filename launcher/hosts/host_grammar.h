#pragma once

#include <string_view>

#include "launcher/hosts/host_spec.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// The parts of the grammar in host_list.h that -H and hostfiles share. Pure; messages name the offending part.

// What follows a place: `:a` or `:a:b` of an entry, not interpreted yet.
struct PlaceText {
  HostSpec host;  // name and user; port and slots are still 0
  std::string_view first_number;   // "" when absent
  std::string_view second_number;  // "" when absent
};

// `[user@]host[:number[:number]]`
Result<PlaceText> parse_place(std::string_view text);

Result<int> parse_slots(std::string_view text);  // 1..4096
Result<int> parse_port(std::string_view text);   // 1..65535

// An entry that ends in its slots: `place[:port]:slots`.
Result<HostSpec> parse_entry(std::string_view text);

}  // namespace hvd::launcher
