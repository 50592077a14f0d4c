#include <algorithm>
#include <set>
#include <string>

#include "launcher/hosts/allocation.h"
#include "launcher/hosts/host_grammar.h"
#include "launcher/hosts/host_list.h"
#include "runtime/base/split.h"
#include "runtime/config/nearest.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

using config::quoted;

constexpr std::size_t kMaxDigits = 9;  // of a number of a range

Status too_many() { return Status::invalid_argument("more than " + std::to_string(kMaxHosts) + " hosts"); }

// Before each name grows: of one long text, thousands of names would take all memory.
Status check_length(std::size_t letters) {
  if (letters <= kMaxHostName) return Status::ok();
  return Status::invalid_argument("a name longer than " + std::to_string(kMaxHostName) + " letters");
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "1-3" or "7": as many digits as the first number has, at least.
Status add_range(std::string_view range, std::vector<std::string>& numbers) {
  const std::size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
  if (!is_number(low) || !is_number(high)) return Status::invalid_argument(quoted(range) + " is no range of numbers");
  const long first = std::stol(std::string(low));
  const long last = std::stol(std::string(high));
  if (last < first) return Status::invalid_argument(quoted(range) + " ends before it begins");
  if (static_cast<std::size_t>(last - first) >= kMaxHosts - std::min(numbers.size(), kMaxHosts)) return too_many();
  for (long number = first; number <= last; ++number) {
    std::string text = std::to_string(number);
    if (text.size() < low.size()) text.insert(0, low.size() - text.size(), '0');
    numbers.push_back(std::move(text));
  }
  return Status::ok();
}

// The content of brackets, "1-3,7".
Result<std::vector<std::string>> expand_ranges(std::string_view text) {
  std::vector<std::string> numbers;
  for (const std::string_view range : split(text, ',')) HVD_RETURN_IF_ERROR(add_range(range, numbers));
  return numbers;
}

// "rack[1-2]n[1-4]": all combinations, the last numbers first.
Result<std::vector<std::string>> expand_entry(std::string_view entry) {
  std::vector<std::string> names{""};
  for (std::size_t at = 0; at < entry.size();) {
    const std::size_t open = std::min(entry.find('[', at), entry.size());
    const std::string_view text = entry.substr(at, open - at);
    if (text.find(']') != std::string_view::npos) return Status::invalid_argument("no '[' before ']'");
    for (std::string& name : names) {
      HVD_RETURN_IF_ERROR(check_length(name.size() + text.size()));
      name += text;
    }
    if (open == entry.size()) break;
    const std::size_t close = entry.find(']', open);
    if (close == std::string_view::npos) return Status::invalid_argument("no ']' behind '['");
    HVD_ASSIGN_OR_RETURN(const auto numbers, expand_ranges(entry.substr(open + 1, close - open - 1)));
    if (names.size() * numbers.size() > kMaxHosts) return too_many();
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& number : numbers) {
        HVD_RETURN_IF_ERROR(check_length(name.size() + number.size()));
        longer.push_back(name + number);
      }
    }
    names = std::move(longer);
    at = close + 1;
  }
  return names;
}

// The end of the entry that begins at `at`: the next comma outside brackets.
std::size_t end_of_entry(std::string_view text, std::size_t at) {
  bool is_inside = false;
  for (; at < text.size() && (is_inside || text[at] != ','); ++at) {
    if (text[at] == '[') is_inside = true;
    if (text[at] == ']') is_inside = false;
  }
  return at;
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view text) {
  if (text.size() > kMaxHostTextBytes) return Status::invalid_argument("longer than 4 MiB");
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = end_of_entry(text, at);
    const std::string_view entry = config::trim(text.substr(at, end - at));
    at = end + 1;
    if (entry.empty()) return Status::invalid_argument("a name is missing in " + quoted(text));
    auto expanded = expand_entry(entry);
    if (!expanded.is_ok()) return expanded.status().annotate(quoted(entry));
    if (names.size() + expanded.value().size() > kMaxHosts) return too_many();
    std::ranges::move(expanded.value(), std::back_inserter(names));
  }
  return names;
}

Result<std::vector<HostSpec>> filter_hosts(std::vector<HostSpec> hosts, std::string_view names, bool keep) {
  HVD_ASSIGN_OR_RETURN(const std::vector<std::string> listed, expand_node_list(names));
  std::set<std::string_view> known;
  for (const HostSpec& host : hosts) known.insert(host.name);
  for (const std::string& name : listed) {
    if (known.contains(name)) continue;
    return Status::invalid_argument(quoted(name) + " is not among the " + std::to_string(hosts.size()) + " hosts" +
                                    config::did_you_mean(name, std::vector(known.begin(), known.end())));
  }
  const std::set<std::string_view> chosen(listed.begin(), listed.end());
  std::erase_if(hosts, [&](const HostSpec& host) { return chosen.contains(host.name) != keep; });
  if (hosts.empty()) return Status::invalid_argument(quoted(names) + " leaves no host");
  return hosts;
}

}  // namespace hvd::launcher
