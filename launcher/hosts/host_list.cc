#include "launcher/hosts/host_list.h"

#include <unordered_map>

#include "launcher/hosts/host_grammar.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

Result<std::vector<HostSpec>> parse_host_list(std::string_view text) {
  if (text.size() > kMaxHostTextBytes) return Status::invalid_argument("the host list is longer than 4 MiB");
  std::vector<HostSpec> hosts;
  std::unordered_map<std::string, std::size_t> seen;  // name -> number of its entry, from 1
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string_view entry = config::trim(text.substr(at, end - at));
    at = end + 1;
    const std::string where = "host list, entry " + std::to_string(hosts.size() + 1) + " " + config::quoted(entry);
    if (hosts.size() == kMaxHosts) return Status::invalid_argument(where + ": more than 65536 hosts");
    if (entry.empty()) return Status::invalid_argument(where + ": empty; expected name:slots");
    Result<HostSpec> host = parse_entry(entry);
    if (!host.is_ok()) return host.status().annotate(where);
    const auto [first, is_new] = seen.emplace(host.value().name, hosts.size() + 1);
    if (!is_new) {
      return Status::invalid_argument(where + ": the host is entry " + std::to_string(first->second) +
                                      " already; add up its slots in one entry");
    }
    hosts.push_back(std::move(host).value());
  }
  return hosts;
}

std::string host_list_text(const std::vector<HostSpec>& hosts) {
  std::string text;
  for (const HostSpec& host : hosts) {
    if (!text.empty()) text += ',';
    if (!host.user.empty()) text += host.user + '@';
    const bool ipv6 = host.name.find(':') != std::string::npos;
    text += ipv6 ? '[' + host.name + ']' : host.name;
    if (host.port != 0) text += ':' + std::to_string(host.port);
    text += ':' + std::to_string(host.slots);
  }
  return text;
}

}  // namespace hvd::launcher
