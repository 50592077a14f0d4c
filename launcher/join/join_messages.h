#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/crypto/hash.h"
#include "runtime/crypto/secret.h"

// How a host that joins and the launcher greet each other (docs/design/launcher.md, "Hosts that join"). Pure.
namespace hvd::launcher {

// What the host sends first is this, a nonce, and its proof; what the launcher answers is a nonce. All that follows is
// sealed.
inline constexpr std::string_view kJoinGreeting = "HVD-JOIN 1\n";
inline constexpr std::size_t kJoinNonceBytes = 32;

// Shows that a greeting was made by a holder of the token (or recorded: it proves no more), before anything is spent on
// who sent it.
crypto::Digest proof_of_greeting(const crypto::Secret& token, ByteSpan nonce_of_host);

// The whole of what a host sends first.
Bytes encode_greeting(const crypto::Secret& token, ByteSpan nonce_of_host);

// What one end has read of the other's greeting. Pure, and for bytes of anybody.
class GreetingReader {
 public:
  enum class From { kHost, kLauncher };
  explicit GreetingReader(From from);

  // Whether it is complete now; what comes after it is in rest(). An error once it can be none.
  Result<bool> feed(ByteSpan bytes);
  // Requires, for these: it is complete.
  ByteSpan nonce() const { return ByteSpan(bytes_).subspan(words_.size(), kJoinNonceBytes); }
  // Of a host's: whether it was made with the token.
  bool is_proven(const crypto::Secret& token) const;
  ByteSpan rest() const { return ByteSpan(bytes_).subspan(size_); }

 private:
  const std::string_view words_;
  const std::size_t size_;
  Bytes bytes_;
};

// The keys of one connection, one for each direction. They follow from the token and both nonces, so that no recording
// is of use in another connection: who seals the first record right has the token, and is there now.
struct JoinKeys {
  JoinKeys(const crypto::Secret& token, ByteSpan nonce_of_host, ByteSpan nonce_of_launcher);
  crypto::Secret to_launcher;
  crypto::Secret to_host;
};

// The host's first record, once the launcher's first (an empty one) has come. What follows the version may change with
// it; that it comes first, the greeting and JoinVerdict may not, so that hosts of another version are told why not.
struct JoinRequest {
  std::string version;    // of the product
  std::string name;       // of the host, in the job
  std::string node = {};  // see HostSpec
};

// The launcher's answer. One that is accepted waits for a record with a cookie, and starts an agent with that; from
// then on records are what passes between launcher and agent. kJobIsOver in the cookie's place: an elastic job has
// ended without a use for this host.
struct JoinVerdict {
  bool accepted = false;
  std::string reason;  // why not
};

inline constexpr std::string_view kJobIsOver = "over";

Bytes encode(const JoinRequest& request);
Bytes encode(const JoinVerdict& verdict);
// Of another version than `own_version`: that alone is read.
Result<JoinRequest> decode_join_request(ByteSpan record, std::string_view own_version);
Result<JoinVerdict> decode_join_verdict(ByteSpan record);

// Whether a host may have that name: as in -H, without user and port.
Status check_host_name(const std::string& name);

// For the order of ranks: numbers inside names count as numbers, so that n2 comes before n10.
bool comes_before(std::string_view a, std::string_view b);

}  // namespace hvd::launcher
