#include "runtime/admission/admission.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <utility>

namespace hvd::admission {

std::optional<ConnectionId> Room::enter(ConnectionId connection, const std::string& source, bool full) {
  std::optional<ConnectionId> evicted;
  const auto same = by_source_.find(source);
  if (same != by_source_.end() && same->second.size() >= per_source_) {
    evicted = evict_from(same);
  } else if (full || size() >= size_) {
    evicted = evict();
  }
  const auto at = by_source_.try_emplace(source).first;
  places_[connection] = {at, at->second.insert(at->second.end(), connection)};
  return evicted;
}

std::optional<std::string> Room::leave(ConnectionId connection) {
  const auto found = places_.find(connection);
  if (found == places_.end()) return std::nullopt;
  const auto [source, at] = found->second;
  places_.erase(found);
  std::string name = source->first;
  source->second.erase(at);
  if (source->second.empty()) by_source_.erase(source);
  return name;
}

std::optional<ConnectionId> Room::evict() {
  if (by_source_.empty()) return std::nullopt;
  // Among equals the one that has waited longest, whatever its name.
  const auto has_less = [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), b.second.front()) < std::pair(b.second.size(), a.second.front());
  };
  return evict_from(std::max_element(by_source_.begin(), by_source_.end(), has_less));
}

ConnectionId Room::evict_from(BySource::iterator source) {
  const ConnectionId oldest = source->second.front();
  leave(oldest);
  return oldest;
}

Admission::Decision Admission::arrive(ConnectionId connection, const std::string& source) {
  const bool full = total() >= limits_.connections;
  if (full && strangers_.size() == 0) return {.admitted = false, .evicted = std::nullopt};
  return {.admitted = true, .evicted = strangers_.enter(connection, source, full)};
}

std::optional<ConnectionId> Admission::introduce(ConnectionId connection) {
  const auto source = strangers_.leave(connection);
  return source ? introduced_.enter(connection, *source) : std::nullopt;
}

bool Admission::prove(ConnectionId connection) {
  const bool waited = strangers_.leave(connection) || introduced_.leave(connection);
  return waited && proven_.insert(connection).second;
}

void Admission::leave(ConnectionId connection) {
  if (!strangers_.leave(connection) && !introduced_.leave(connection)) proven_.erase(connection);
}

std::string source_of(const std::string& numeric_address) {
  in_addr v4{};
  if (inet_pton(AF_INET, numeric_address.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127 ? "loopback" : numeric_address;
  }
  in6_addr v6{};
  const std::string address = numeric_address.substr(0, numeric_address.find('%'));
  if (inet_pton(AF_INET6, address.c_str(), &v6) != 1) return numeric_address;
  if (IN6_IS_ADDR_LOOPBACK(&v6)) return "loopback";
  std::fill(std::begin(v6.s6_addr) + 8, std::end(v6.s6_addr), std::uint8_t{0});
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(AF_INET6, &v6, text.data(), static_cast<socklen_t>(text.size()));
  return std::string(text.data()) + "/64";
}

}  // namespace hvd::admission
