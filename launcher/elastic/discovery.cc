#include "launcher/elastic/discovery.h"

#include <algorithm>
#include <string>
#include <utility>

#include "launcher/hosts/host_grammar.h"
#include "launcher/hosts/host_list.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {
namespace {

Result<HostSpec> parse_line(std::string_view line, int default_slots) {
  HVD_ASSIGN_OR_RETURN(const PlaceText place, parse_place(line));
  const std::string_view slots = place.second_number.empty() ? place.first_number : place.second_number;
  if (slots.find_first_not_of('0') != std::string_view::npos) return parse_entry(line);
  HostSpec host = place.host;
  host.slots = slots.empty() ? default_slots : 0;
  return host;
}

}  // namespace

Result<std::vector<HostSpec>> parse_discovered_hosts(std::string_view text, int default_slots) {
  if (text.size() > kMaxDiscoveryBytes) {
    return Status::invalid_argument("it printed more than " + std::to_string(kMaxDiscoveryBytes >> 20) + " MiB");
  }
  HostTable table;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = config::trim(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    const Result<HostSpec> host = parse_line(line, default_slots);
    if (host.is_ok() && host.value().slots == 0) continue;  // it is drained, or its slots are others' now
    const Status added = host.is_ok() ? table.add(host.value()) : host.status();
    if (!added.is_ok()) return added.annotate("its line " + std::to_string(number) + " " + config::quoted(line));
  }
  return table.hosts();
}

Result<std::optional<std::vector<HostSpec>>> HostfileWatch::read(std::string text, std::string_view file) {
  const bool is_first = !last_;
  const bool is_as_before = last_ == text;
  last_ = std::move(text);
  if (!is_first && !is_as_before) return std::optional<std::vector<HostSpec>>();
  if (!is_first && !last_->empty() && !last_->ends_with('\n')) {
    return Status::invalid_argument(std::string(file) + ": its last line has no end: expected a newline there");
  }
  HVD_ASSIGN_OR_RETURN(std::vector<HostSpec> hosts, parse_hostfile(*last_, file));
  return std::optional(std::move(hosts));
}

}  // namespace hvd::launcher
