#include "launcher/join/join_messages.h"

#include <algorithm>
#include <tuple>

#include "launcher/hosts/host_grammar.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxVersion = 64;
constexpr std::size_t kMaxReason = 1024;
constexpr std::size_t kProofBytes = std::tuple_size_v<crypto::Digest>;

crypto::Secret connection_key(const crypto::Secret& token, ByteSpan nonce_of_host, ByteSpan nonce_of_launcher) {
  return token.derive({as_bytes(kJoinGreeting), nonce_of_host, nonce_of_launcher});
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The digits at the beginning of the text, without leading zeros; they are taken off it.
std::string_view take_number(std::string_view& text) {
  const auto end = static_cast<std::size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return digits;
}

}  // namespace

crypto::Digest proof_of_greeting(const crypto::Secret& token, ByteSpan nonce_of_host) {
  return crypto::hmac_sha256(token.derive("greeting of a host", 0), {as_bytes(kJoinGreeting), nonce_of_host});
}

Bytes encode_greeting(const crypto::Secret& token, ByteSpan nonce_of_host) {
  const crypto::Digest proof = proof_of_greeting(token, nonce_of_host);
  Bytes greeting;
  for (const ByteSpan part : {as_bytes(kJoinGreeting), nonce_of_host, ByteSpan(proof)}) {
    greeting.insert(greeting.end(), part.begin(), part.end());
  }
  return greeting;
}

GreetingReader::GreetingReader(From from)
    : words_(from == From::kHost ? kJoinGreeting : std::string_view()),
      size_(words_.size() + kJoinNonceBytes + (from == From::kHost ? kProofBytes : 0)) {}

Result<bool> GreetingReader::feed(ByteSpan bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  const std::size_t seen = std::min(words_.size(), bytes_.size());
  if (as_text(ByteSpan(bytes_).first(seen)) != words_.substr(0, seen)) {
    return Status::precondition("what came is not the greeting of a horovodrun");
  }
  return bytes_.size() >= size_;
}

bool GreetingReader::is_proven(const crypto::Secret& token) const {
  const ByteSpan proof = ByteSpan(bytes_).subspan(size_ - kProofBytes, kProofBytes);
  return crypto::constant_time_equal(proof, proof_of_greeting(token, nonce()));
}

JoinKeys::JoinKeys(const crypto::Secret& token, ByteSpan nonce_of_host, ByteSpan nonce_of_launcher)
    : to_launcher(connection_key(token, nonce_of_host, nonce_of_launcher).derive("to launcher", 0)),
      to_host(connection_key(token, nonce_of_host, nonce_of_launcher).derive("to host", 0)) {}

Bytes encode(const JoinRequest& request) {
  ByteWriter out;
  out.put_string(request.version);
  out.put_string(request.name);
  out.put_string(request.node);
  return out.take();
}

Bytes encode(const JoinVerdict& verdict) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(verdict.accepted));
  out.put_string(verdict.reason.substr(0, kMaxReason));
  return out.take();
}

Result<JoinRequest> decode_join_request(ByteSpan record, std::string_view own_version) {
  ByteReader in(record);
  JoinRequest request;
  request.version = in.get_string(kMaxVersion);
  if (!in.failed() && request.version != own_version) return request;
  request.name = in.get_string(kMaxHostName);
  request.node = in.get_string(kMaxHostName);
  HVD_RETURN_IF_ERROR(in.finish("join request"));
  return request;
}

Result<JoinVerdict> decode_join_verdict(ByteSpan record) {
  ByteReader in(record);
  JoinVerdict verdict;
  const auto accepted = in.get<std::uint8_t>();
  if (accepted > 1) in.fail("neither accepted nor refused");
  verdict.accepted = accepted == 1;
  verdict.reason = in.get_string(kMaxReason);
  HVD_RETURN_IF_ERROR(in.finish("join verdict"));
  return verdict;
}

Status check_host_name(const std::string& name) {
  const auto place = parse_place(name);
  if (!place.is_ok()) return place.status();
  if (place.value().host.name == name) return Status::ok();
  return Status::invalid_argument("'" + name + "' is more than the name of a host");
}

bool comes_before(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view number_a = take_number(a);
      const std::string_view number_b = take_number(b);
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
      if (number_a != number_b) return number_a < number_b;
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // "n01" and "n1"
}

}  // namespace hvd::launcher
