#include "launcher/protocol/cookie.h"

#include <algorithm>
#include <array>

#include "runtime/crypto/secret.h"

namespace hvd::launcher {

std::string hello_line(const std::string& cookie) { return "HVD-AGENT " + cookie + "\n"; }

std::string make_cookie() {
  std::array<std::uint8_t, 16> raw;
  crypto::random_bytes(raw);
  return to_hex(raw);
}

bool is_cookie(std::string_view text) {
  return text.size() == 32 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::optional<Bytes> CookieScanner::feed(ByteSpan chunk) {
  window_.append(as_text(chunk));
  const std::size_t found = window_.find(wanted_);
  if (found != std::string::npos) {
    const ByteSpan rest = as_bytes(window_).subspan(found + wanted_.size());
    return Bytes(rest.begin(), rest.end());
  }
  noise_bytes_ += chunk.size();
  if (window_.size() >= wanted_.size()) window_.erase(0, window_.size() - (wanted_.size() - 1));
  return std::nullopt;
}

}  // namespace hvd::launcher
