#include "launcher/hosts/host_list.h"

#include "launcher/hosts/host_grammar.h"
#include "runtime/base/split.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

Result<std::vector<HostSpec>> parse_host_list(std::string_view text) {
  if (text.size() > kMaxHostTextBytes) return Status::invalid_argument("the host list is longer than 4 MiB");
  HostTable table;
  std::size_t number = 0;
  for (const std::string_view piece : split(text, ',')) {
    const std::string_view entry = config::trim(piece);
    const std::string where = "host list, entry " + std::to_string(++number) + " " + config::quoted(entry);
    if (entry.empty()) return Status::invalid_argument(where + ": empty; expected name:slots");
    const Result<HostSpec> host = parse_entry(entry);
    const Status added = host.is_ok() ? table.add(host.value()) : host.status();
    if (!added.is_ok()) return added.annotate(where);
  }
  return table.hosts();
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
