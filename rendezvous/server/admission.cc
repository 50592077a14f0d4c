#include "rendezvous/server/admission.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace hvd::rendezvous {

Admission::Decision Admission::arrive(std::uint64_t connection, const std::string& source) {
  Decision decision;
  const auto count = by_source_.find(source);
  if (count != by_source_.end() && count->second >= limits_.unauthenticated_per_source) {
    decision.evicted = evict_from(source);
  } else if (unauthenticated_.size() >= limits_.unauthenticated || total() >= limits_.connections) {
    if (unauthenticated_.empty()) return {.admitted = false, .evicted = std::nullopt};
    decision.evicted = evict_from(busiest_source());
  }
  unauthenticated_.push_back({connection, source});
  ++by_source_[source];
  return decision;
}

std::optional<std::uint64_t> Admission::evict_from(const std::string& source) {
  const auto oldest = std::ranges::find(unauthenticated_, source, &Waiting::source);
  if (oldest == unauthenticated_.end()) return std::nullopt;
  const std::uint64_t connection = oldest->connection;
  forget_unauthenticated(connection);
  return connection;
}

std::string Admission::busiest_source() const {
  return std::ranges::max_element(by_source_, {}, [](const auto& entry) { return entry.second; })
      ->first;
}

bool Admission::forget_unauthenticated(std::uint64_t connection) {
  const auto at = std::ranges::find(unauthenticated_, connection, &Waiting::connection);
  if (at == unauthenticated_.end()) return false;
  const auto count = by_source_.find(at->source);
  if (--count->second == 0) by_source_.erase(count);
  unauthenticated_.erase(at);
  return true;
}

bool Admission::authenticate(std::uint64_t connection) {
  return forget_unauthenticated(connection) && authenticated_.insert(connection).second;
}

void Admission::leave(std::uint64_t connection) {
  if (!forget_unauthenticated(connection)) authenticated_.erase(connection);
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

}  // namespace hvd::rendezvous
