#include "runtime/transport/auth/handshake.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/transport/net/address_row.h"

namespace hvd::transport {
namespace {

constexpr std::string_view kMagic = "HVDXPORT";
constexpr std::size_t kMacSize = 32;

// The role is part of what is signed: a peer's MAC cannot be sent back to it. All roles have the same length.
crypto::Digest sign(const crypto::Secret& key, std::string_view role, ByteSpan hello, ByteSpan nonce) {
  return crypto::hmac_sha256(key, {as_bytes(role), hello, nonce});
}
constexpr std::string_view kAcceptorRole = "hvd:acceptor:";
constexpr std::string_view kConnectorRole = "hvd:connector";
constexpr std::string_view kIntroduction = "hvd:introduce";
constexpr std::string_view kTlsKey = "hvd:tls-both:";

std::string_view refusal_text(Refusal refusal) {
  switch (refusal) {
    case Refusal::kVersion:
      return "it speaks another protocol version; all ranks need the same version of this package";
    case Refusal::kEpoch: return "it is in another epoch of the job";
    case Refusal::kRank: return "it is another rank than the one wanted";
    case Refusal::kBusy: return "it has too many unfinished connections";
    case Refusal::kSecret: return "this rank does not hold the secret of its job";
    case Refusal::kTls: return "only one of the two has TLS on; HOROVOD_TLS must be the same on all ranks";
    case Refusal::kNone: break;
  }
  return "an unknown reason";
}

}  // namespace

Bytes Hello::encode() const {
  ByteWriter out;
  out.put_raw(as_bytes(kMagic));
  out.put(kProtocolVersion);
  out.put(static_cast<std::uint8_t>(static_cast<int>(kind) + number));
  out.put(static_cast<std::uint8_t>(tls));
  out.put(static_cast<std::uint32_t>(from_rank));
  out.put(static_cast<std::uint32_t>(to_rank));
  out.put(epoch);
  out.put_raw(nonce);
  std::array<std::uint8_t, kMaxHostName> host{};
  std::copy_n(host_name.begin(), std::min(host_name.size(), kMaxHostName), host.begin());
  out.put_raw(host);
  return out.take();
}

ConnectorHandshake::ConnectorHandshake(const Hello& hello, const crypto::Secret& key)
    : key_(key), tls_(hello.tls), hello_(hello.encode()), output_(hello_) {
  const crypto::Digest mac = sign(key_, kIntroduction, hello_, {});
  output_.insert(output_.end(), mac.begin(), mac.end());
}

Bytes ConnectorHandshake::take_output() { return std::exchange(output_, {}); }

void ConnectorHandshake::feed(ByteSpan input) {
  HVD_CHECK(input.size() <= wanted(), "a handshake was fed more than it wanted");
  if (input.empty()) return;
  input_.insert(input_.end(), input.begin(), input.end());
  if (input_.size() < wanted_) return;
  switch (state_) {
    case State::kCode:
      if (input_[0] != 0) return on_refusal(input_[0]);
      wanted_ = 1 + kNonceSize + kMacSize;
      state_ = State::kReply;
      return;
    case State::kReply: return check_reply();
    case State::kWelcome:
      if (input_[0] != 0) return on_refusal(input_[0]);
      state_ = State::kDone;
      return;
    case State::kDone: return;
  }
}

void ConnectorHandshake::check_reply() {
  const ByteSpan nonce = ByteSpan(input_).subspan(1, kNonceSize);
  const ByteSpan mac = ByteSpan(input_).subspan(1 + kNonceSize);
  if (!crypto::constant_time_equal(mac, sign(key_, kAcceptorRole, hello_, nonce))) {
    error_ = Status::precondition("it does not hold the secret of this job");
    return;
  }
  const crypto::Digest finish = sign(key_, kConnectorRole, hello_, nonce);
  output_.assign(finish.begin(), finish.end());
  if (tls_) tls_key_.emplace(key_.derive({as_bytes(kTlsKey), hello_, nonce}));
  input_.clear();
  wanted_ = 1;
  state_ = State::kWelcome;
}

void ConnectorHandshake::on_refusal(std::uint8_t code) {
  if (code <= static_cast<std::uint8_t>(Refusal::kTls)) refusal_ = static_cast<Refusal>(code);
  error_ = Status::precondition("it refuses: " + std::string(refusal_text(refusal_)));
}

Bytes AcceptorHandshake::take_output() { return std::exchange(output_, {}); }

void AcceptorHandshake::feed(ByteSpan input) {
  HVD_CHECK(input.size() <= wanted(), "a handshake was fed more than it wanted");
  if (input.empty()) return;
  input_.insert(input_.end(), input.begin(), input.end());
  if (input_.size() < wanted_) return;
  if (state_ == State::kFinish) return check_finish();
  if (wanted_ == Hello::kPreludeSize) return check_prelude();
  parse_hello();
}

void AcceptorHandshake::check_prelude() {
  ByteReader in(input_);
  const ByteSpan magic = in.take(kMagic.size());
  const auto version = in.get<std::uint16_t>();
  const auto kind = in.get<std::uint8_t>();
  const auto tls = in.get<std::uint8_t>();
  if (as_text(magic) != kMagic) return fail("it is not a rank of a job: it began with " + to_hex(magic));
  if (version != kProtocolVersion) {
    return refuse(Refusal::kVersion, "it speaks protocol version " + std::to_string(version) + ", this rank " +
                                         std::to_string(kProtocolVersion));
  }
  if (kind < 1 || kind > 1 + kMaxSockets || tls > 1) {
    return fail("it wants a connection of unknown kind " + std::to_string(kind));
  }
  hello_.kind = kind == 1 ? ConnectionKind::kControl : ConnectionKind::kData;
  hello_.number = kind == 1 ? 0 : kind - static_cast<int>(ConnectionKind::kData);
  hello_.tls = tls == 1;
  wanted_ = Hello::kSize + kMacSize;
}

void AcceptorHandshake::parse_hello() {
  ByteReader in(input_);
  in.take(Hello::kPreludeSize);
  const auto from = in.get<std::uint32_t>();
  const auto to = in.get<std::uint32_t>();
  hello_.epoch = in.get<std::uint64_t>();
  std::ranges::copy(in.take(kNonceSize), hello_.nonce.begin());
  const std::string_view host = as_text(in.take(Hello::kMaxHostName));
  hello_.host_name = std::string(host.substr(0, host.find('\0')));
  for (char& c : hello_.host_name) {
    if (c < 0x20 || c > 0x7e) c = '?';  // it ends in logs
  }
  constexpr std::uint32_t kMaxRank = 1U << 30U;
  if (from > kMaxRank || to > kMaxRank) return fail("it names an impossible rank");
  hello_.from_rank = static_cast<int>(from);
  hello_.to_rank = static_cast<int>(to);
  std::ranges::copy(in.take(kMacSize), hello_mac_.begin());
  hello_bytes_ = std::exchange(input_, {});
  hello_bytes_.resize(Hello::kSize);
  state_ = State::kNeedIdentity;
}

void AcceptorHandshake::admit(const AcceptorIdentity& identity) {
  HVD_CHECK(needs_identity(), "admit() out of turn");
  if (hello_.epoch != identity.epoch) {
    return refuse(Refusal::kEpoch, "it is in another epoch of the job");
  }
  if (hello_.to_rank != identity.rank || hello_.from_rank == identity.rank || hello_.from_rank >= identity.size) {
    return refuse(Refusal::kRank, "rank " + std::to_string(hello_.from_rank) + " wants rank " +
                                      std::to_string(hello_.to_rank) + ", this is rank " +
                                      std::to_string(identity.rank) + " of " + std::to_string(identity.size));
  }
  const crypto::Secret& key = hello_.kind == ConnectionKind::kControl ? identity.control_key : identity.data_key;
  if (!crypto::constant_time_equal(hello_mac_, sign(key, kIntroduction, hello_bytes_, {}))) {
    return refuse(Refusal::kSecret, "it does not hold the secret of this job");
  }
  if (hello_.tls != identity.tls) {
    return refuse(Refusal::kTls, "rank " + std::to_string(hello_.from_rank) + " on host " + hello_.host_name +
                                     " has TLS " + (hello_.tls ? "on" : "off") + ", this rank has it " +
                                     (identity.tls ? "on" : "off") + "; HOROVOD_TLS must be the same on all ranks");
  }
  if (identity.tls) tls_key_.emplace(key.derive({as_bytes(kTlsKey), hello_bytes_, nonce_}));
  const crypto::Digest mac = sign(key, kAcceptorRole, hello_bytes_, nonce_);
  expected_ = sign(key, kConnectorRole, hello_bytes_, nonce_);
  output_.assign(1, static_cast<std::uint8_t>(Refusal::kNone));
  output_.insert(output_.end(), nonce_.begin(), nonce_.end());
  output_.insert(output_.end(), mac.begin(), mac.end());
  wanted_ = kMacSize;
  state_ = State::kFinish;
}

void AcceptorHandshake::check_finish() {
  if (!crypto::constant_time_equal(input_, expected_)) return fail("it does not hold the secret of this job");
  output_.assign(1, static_cast<std::uint8_t>(Refusal::kNone));
  state_ = State::kDone;
}

void AcceptorHandshake::turn_out() {
  if (state_ == State::kHello || state_ == State::kNeedIdentity) refuse(Refusal::kBusy, "others needed its place");
}

void AcceptorHandshake::fail(std::string why) {
  error_ = Status::precondition(std::move(why));
  state_ = State::kFailed;
}

void AcceptorHandshake::refuse(Refusal refusal, std::string why) {
  output_.assign(1, static_cast<std::uint8_t>(refusal));
  fail(std::move(why));
}

}  // namespace hvd::transport
