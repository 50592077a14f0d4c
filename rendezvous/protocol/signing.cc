#include "rendezvous/protocol/signing.h"

#include <charconv>

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kScheme = "HVD1 ";

// Takes `hex` (lower case, exactly 2 * N digits) into `out`.
template <std::size_t N>
bool read_hex(std::string_view hex, std::array<std::uint8_t, N>& out) {
  if (hex.size() != 2 * N) return false;
  auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (std::size_t i = 0; i < N; ++i) {
    const int high = digit(hex[2 * i]);
    const int low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

// Bound to the request by its MAC: an answer to one request is no answer to another.
crypto::Digest response_mac(const crypto::Secret& key, int status, ByteSpan body, const crypto::Digest& request_mac) {
  ByteWriter head;
  head.put<std::uint32_t>(static_cast<std::uint32_t>(status));
  head.put<std::uint64_t>(body.size());
  return crypto::hmac_sha256(key, {as_bytes("HVD1 answer "), request_mac, crypto::sha256(body), head.bytes()});
}

}  // namespace

crypto::Secret store_key(const crypto::Secret& job_secret) { return job_secret.derive("kv", 0); }

crypto::Secret tls_key(const crypto::Secret& job_secret) { return job_secret.derive("tls", 0); }

std::string format_authorization(const Authorization& authorization) {
  return std::string(kScheme) + to_hex(authorization.session) + "," + std::to_string(authorization.counter) + "," +
         to_hex(authorization.mac);
}

std::optional<Authorization> parse_authorization(std::string_view text) {
  if (!text.starts_with(kScheme)) return std::nullopt;
  text.remove_prefix(kScheme.size());
  const std::size_t first = text.find(',');
  const std::size_t last = text.rfind(',');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const std::string_view digits = text.substr(first + 1, last - first - 1);

  Authorization parsed;
  if (!read_hex(text.substr(0, first), parsed.session) || !read_hex(text.substr(last + 1), parsed.mac))
    return std::nullopt;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parsed.counter);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (digits.size() > 1 && digits.front() == '0') return std::nullopt;
  return parsed;
}

crypto::Secret session_key(const crypto::Secret& store_key, ByteSpan session_request_body, const Nonce& server_nonce) {
  const crypto::Digest body = crypto::sha256(session_request_body);
  return store_key.derive({as_bytes("HVD1 session"), body, server_nonce});
}

crypto::Digest request_mac(const crypto::Secret& key, const HttpRequest& request, const Nonce& session,
                           std::uint64_t counter) {
  ByteWriter head;
  head.put_string(request.method);
  head.put_string(request.target);
  head.put<std::uint64_t>(request.body.size());
  head.put<std::uint64_t>(counter);
  const crypto::Digest body = crypto::sha256(request.body);
  return crypto::hmac_sha256(key, {as_bytes("HVD1 request"), session, body, head.bytes()});
}

crypto::Digest sign_request(const crypto::Secret& key, const Nonce& session, std::uint64_t counter,
                            HttpRequest& request) {
  const crypto::Digest mac = request_mac(key, request, session, counter);
  request.authorization = format_authorization({.session = session, .counter = counter, .mac = mac});
  return mac;
}

void sign_response(const crypto::Secret& key, const crypto::Digest& request_mac, HttpResponse& response) {
  response.signature = to_hex(response_mac(key, response.status, response.body, request_mac));
}

bool is_authentic(const crypto::Secret& key, const crypto::Digest& request_mac, const HttpResponse& response) {
  crypto::Digest sent{};
  if (!read_hex(response.signature, sent)) return false;
  return crypto::constant_time_equal(sent, response_mac(key, response.status, response.body, request_mac));
}

}  // namespace hvd::rendezvous
