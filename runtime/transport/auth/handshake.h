#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/crypto/hash.h"
#include "runtime/crypto/secret.h"

namespace hvd::transport {

// The mutual challenge-response at the start of every connection between ranks, as two pure state machines: bytes in,
// bytes out, no I/O, no clock, no randomness (nonces come in). Grammar and proof sketch: docs/design/transport.md.
//
//   connector -> acceptor   hello    who I am, whom I want, for what, in which epoch, nonce; MAC over that
//   acceptor -> connector   reply    a refusal, or nonce and MAC over hello and nonce
//   connector -> acceptor   finish   MAC over the same by the other role
//   acceptor -> connector   welcome  the connector may count on the connection
//
// Both sides hold the key; nothing of a user follows before each has seen the other's MAC. The MAC of the hello proves
// little, for it may be a recording, but nobody without the key gets past it.

enum class ConnectionKind : std::uint8_t { kControl = 1, kData = 2 };
// Data connections of one pair of ranks.
inline constexpr int kMaxSockets = 8;

inline constexpr std::size_t kNonceSize = 32;
using Nonce = std::array<std::uint8_t, kNonceSize>;

// Why an acceptor refuses a well-formed hello. Sent in clear to help the error text; nobody trusts it.
enum class Refusal : std::uint8_t { kNone = 0, kVersion = 1, kEpoch = 2, kRank = 3, kBusy = 4, kSecret = 5, kTls = 6 };

struct Hello {
  ConnectionKind kind = ConnectionKind::kControl;
  int number = 0;    // of a data connection among those of its pair, below kMaxSockets
  bool tls = false;  // of the connector; both have the same setting, or there is no connection
  int from_rank = 0;
  int to_rank = 0;
  std::uint64_t epoch = 0;
  Nonce nonce{};
  std::string host_name;  // of the connector, for messages; at most kMaxHostName bytes travel

  static constexpr std::size_t kMaxHostName = 64;
  static constexpr std::size_t kPreludeSize = 12;  // magic, version, kind, TLS or not: enough to know a stranger
  static constexpr std::size_t kSize = kPreludeSize + 4 + 4 + 8 + kNonceSize + kMaxHostName;  // without the MAC
  Bytes encode() const;
};

// What an acceptor knows once its session is open.
struct AcceptorIdentity {
  std::uint64_t epoch;
  int rank;
  int size;
  crypto::Secret control_key;
  crypto::Secret data_key;
  bool tls = false;
};

class ConnectorHandshake {
 public:
  ConnectorHandshake(const Hello& hello, const crypto::Secret& key);

  // What to write next; empty when nothing is due.
  Bytes take_output();
  // How many bytes to read next; 0 when the handshake has ended. The transport must not read more.
  std::size_t wanted() const { return failed() || done() ? 0 : wanted_ - input_.size(); }
  // Requires: input.size() <= wanted().
  void feed(ByteSpan input);

  bool done() const { return state_ == State::kDone; }
  bool failed() const { return !error_.is_ok(); }
  // The acceptor is told all, and counts the connection as made as soon as it has read that. With TLS everything from
  // the welcome on goes through a tunnel with this key.
  bool awaits_welcome() const { return state_ == State::kWelcome; }
  const std::optional<crypto::Secret>& tls_key() const { return tls_key_; }
  const Status& error() const { return error_; }
  Refusal refusal() const { return refusal_; }

 private:
  enum class State { kCode, kReply, kWelcome, kDone };
  void on_refusal(std::uint8_t code);
  void check_reply();

  crypto::Secret key_;
  bool tls_;
  Bytes hello_;
  Bytes input_;
  Bytes output_;
  State state_ = State::kCode;
  std::size_t wanted_ = 1;
  Refusal refusal_ = Refusal::kNone;
  std::optional<crypto::Secret> tls_key_;
  Status error_;
};

class AcceptorHandshake {
 public:
  explicit AcceptorHandshake(const Nonce& nonce) : nonce_(nonce) {}

  Bytes take_output();
  // 0 when the handshake has ended or waits for admit().
  std::size_t wanted() const {
    return state_ == State::kHello || state_ == State::kFinish ? wanted_ - input_.size() : 0;
  }
  void feed(ByteSpan input);

  // The hello is complete and the acceptor must say who it is; it may be long before it knows.
  bool needs_identity() const { return state_ == State::kNeedIdentity; }
  // Fails when the hello is for somebody else or was not made with the key. Requires: needs_identity().
  void admit(const AcceptorIdentity& identity);
  // Tells the connector to try again later, if nothing was answered yet.
  void turn_out();

  bool done() const { return state_ == State::kDone; }
  bool failed() const { return state_ == State::kFailed; }
  const Status& error() const { return error_; }
  // Requires: needs_identity() or later.
  const Hello& hello() const { return hello_; }
  // Present when the connector was admitted and both use TLS; the welcome goes through a tunnel with this key already.
  const std::optional<crypto::Secret>& tls_key() const { return tls_key_; }

 private:
  enum class State { kHello, kNeedIdentity, kFinish, kDone, kFailed };
  void check_prelude();
  void parse_hello();
  void check_finish();
  void fail(std::string why);
  void refuse(Refusal refusal, std::string why);

  Nonce nonce_;
  State state_ = State::kHello;
  Bytes input_;
  std::size_t wanted_ = Hello::kPreludeSize;
  Bytes output_;
  Bytes hello_bytes_;
  Hello hello_;
  crypto::Digest hello_mac_{};
  crypto::Digest expected_{};
  std::optional<crypto::Secret> tls_key_;
  Status error_;
};

}  // namespace hvd::transport
