#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>

namespace hvd::rendezvous {

struct AdmissionLimits {
  std::size_t connections = 0;
  std::size_t unauthenticated = 0;
  std::size_t unauthenticated_per_source = 0;
};

// Which connections there may be. Pure; owned by the server and used on its thread only.
//
// Connections that have not shown the key are bounded, in all and by source, and a new one takes
// the place of the oldest: a real client shows the key within a round trip, so a crowd of silent
// connections only pushes out itself. Only when all connections are authenticated and their number
// is at its bound is a new one turned away.
class Admission {
 public:
  explicit Admission(AdmissionLimits limits) : limits_(limits) {}

  struct Decision {
    bool admitted = true;
    std::optional<std::uint64_t> evicted;  // to be closed by the caller; it is forgotten already
  };
  // `source` is what connections are counted by: source_of().
  Decision arrive(std::uint64_t connection, const std::string& source);
  // The connection has shown the key. False when that was known.
  bool authenticate(std::uint64_t connection);
  // The connection is closed. Nothing happens when it was evicted.
  void leave(std::uint64_t connection);

  std::size_t unauthenticated() const { return unauthenticated_.size(); }
  std::size_t total() const { return unauthenticated_.size() + authenticated_.size(); }

 private:
  struct Waiting {
    std::uint64_t connection;
    std::string source;
  };
  std::optional<std::uint64_t> evict_from(const std::string& source);
  std::string busiest_source() const;
  bool forget_unauthenticated(std::uint64_t connection);

  AdmissionLimits limits_;
  std::list<Waiting> unauthenticated_;  // oldest first; short, because it is bounded
  std::map<std::string, std::size_t> by_source_;
  std::unordered_set<std::uint64_t> authenticated_;
};

// All loopback addresses are one source (anybody on the host may use any of them), and so is an
// IPv6 /64 network.
std::string source_of(const std::string& numeric_address);

}  // namespace hvd::rendezvous
