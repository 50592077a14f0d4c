#include "launcher/hosts/host_grammar.h"

#include <arpa/inet.h>

#include <string>

#include "launcher/hosts/host_list.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t kMaxLabel = 63;
constexpr std::size_t kMaxUser = 64;

using config::quoted;

// <cctype> follows the locale; host names do not.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alnum(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_label(std::string_view label) {
  if (label.empty() || label.size() > kMaxLabel || label.front() == '-' || label.back() == '-') return false;
  for (const char c : label) {
    if (!is_alnum(c) && c != '-' && c != '_') return false;
  }
  return true;
}

// With a dot at its end a name is as DNS has it, and no search list is tried.
bool is_name(std::string_view name) {
  if (name.size() > kMaxHostName) return false;
  if (name.ends_with('.')) name.remove_suffix(1);
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    if (!is_label(name.substr(at, dot - at))) return false;
    at = dot + 1;
  }
  return true;
}

// Digits and dots can only be meant as an address: 10.0.0.256 is no host name.
bool is_bad_ipv4(std::string_view name) {
  if (name.find('.') == std::string_view::npos || name.find_first_not_of("0123456789.") != std::string_view::npos) {
    return false;
  }
  in_addr address{};
  return inet_pton(AF_INET, std::string(name).c_str(), &address) != 1;
}

// An embedded NUL would hide the rest of the name from inet_pton.
bool is_ipv6(std::string_view text) {
  in6_addr parsed{};
  return text.find('\0') == std::string_view::npos && inet_pton(AF_INET6, std::string(text).c_str(), &parsed) == 1;
}

bool is_user(std::string_view user) {
  if (user.empty() || user.size() > kMaxUser || user.front() == '-' || user.front() == '.') return false;
  for (const char c : user) {
    if (!is_alnum(c) && c != '-' && c != '_' && c != '.') return false;
  }
  return true;
}

// Splits the host from what follows it; `text` is without the user.
Result<std::string> take_host(std::string_view& text) {
  if (!text.starts_with('[')) {
    if (is_ipv6(text)) {
      return Status::invalid_argument(quoted(text) +
                                      " has no brackets around its IPv6 address, expected as in '[::1]:2'");
    }
    const std::string_view name = text.substr(0, text.find(':'));
    text.remove_prefix(name.size());
    if (!is_name(name)) {
      return Status::invalid_argument(quoted(name) +
                                      " is not a host name: labels of letters, digits, '-' and '_', "
                                      "joined by dots, without '-' at their ends");
    }
    if (is_bad_ipv4(name)) return Status::invalid_argument(quoted(name) + " is not an IPv4 address");
    return std::string(name);
  }
  const std::size_t end = text.find(']');
  if (end == std::string_view::npos) return Status::invalid_argument(quoted(text) + " has no ']'");
  const std::string address(text.substr(1, end - 1));
  text.remove_prefix(end + 1);
  if (!is_ipv6(address)) return Status::invalid_argument(quoted(address) + " is not an IPv6 address");
  return address;
}

// Takes `:text` off the front; "" with text left over means that there was no colon.
Result<std::string_view> take_number(std::string_view& text) {
  if (text.empty()) return std::string_view();
  const std::string_view rest = text;
  if (!text.starts_with(':')) return Status::invalid_argument("unexpected " + quoted(rest) + " after the host");
  text.remove_prefix(1);
  const std::string_view number = text.substr(0, text.find(':'));
  text.remove_prefix(number.size());
  if (number.empty()) return Status::invalid_argument("a number is missing after ':'");
  return number;
}

Result<int> parse_number(std::string_view text, std::string_view what, int max) {
  // Digits only: the sign and blanks that parse_integer tolerates have no place inside an entry.
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  const Result<std::int64_t> value = config::parse_integer(text, 1, max);
  if (!digits || !value.is_ok()) {
    return Status::invalid_argument(quoted(text) + " is not a " + std::string(what) + " from 1 to " +
                                    std::to_string(max));
  }
  return static_cast<int>(value.value());
}

}  // namespace

Result<PlaceText> parse_place(std::string_view text) {
  PlaceText place;
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    const std::string_view user = text.substr(0, at);
    if (!is_user(user)) {
      return Status::invalid_argument(quoted(user) +
                                      " is not a user name: letters, digits, '.', '-' and '_', not "
                                      "beginning with '-' or '.'");
    }
    place.host.user = user;
    text.remove_prefix(at + 1);
  }
  HVD_ASSIGN_OR_RETURN(place.host.name, take_host(text));
  HVD_ASSIGN_OR_RETURN(place.first_number, take_number(text));
  HVD_ASSIGN_OR_RETURN(place.second_number, take_number(text));
  if (!text.empty()) return Status::invalid_argument("unexpected " + quoted(text) + " at the end");
  return place;
}

Result<int> parse_slots(std::string_view text) { return parse_number(text, "number of slots", kMaxSlotsPerHost); }
Result<int> parse_port(std::string_view text) { return parse_number(text, "port", 65535); }

Result<HostSpec> parse_entry(std::string_view text) {
  HVD_ASSIGN_OR_RETURN(PlaceText place, parse_place(text));
  if (place.first_number.empty()) {
    place.host.slots = 1;
    return place.host;
  }
  const bool has_port = !place.second_number.empty();
  if (has_port) {
    HVD_ASSIGN_OR_RETURN(place.host.port, parse_port(place.first_number));
  }
  HVD_ASSIGN_OR_RETURN(place.host.slots, parse_slots(has_port ? place.second_number : place.first_number));
  return place.host;
}

Status HostTable::add(const HostSpec& host) {
  const auto [known, is_new] = index_.emplace(host.name, hosts_.size());
  if (is_new) {
    if (hosts_.size() == kMaxHosts) return Status::invalid_argument("more than 65536 hosts");
    hosts_.push_back(host);
    return Status::ok();
  }
  HostSpec& first = hosts_[known->second];
  if (first.user != host.user || first.port != host.port) {
    return Status::invalid_argument("host " + quoted(host.name) +
                                    " was named before with another user or port; name it with the same ones");
  }
  if (first.slots + host.slots > kMaxSlotsPerHost) {
    return Status::invalid_argument("host " + quoted(host.name) + " has " + std::to_string(first.slots + host.slots) +
                                    " slots with its earlier mentions; the limit is " +
                                    std::to_string(kMaxSlotsPerHost));
  }
  first.slots += host.slots;
  return Status::ok();
}

}  // namespace hvd::launcher
