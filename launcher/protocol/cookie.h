#pragma once

#include <optional>
#include <string>

#include "runtime/base/bytes.h"

namespace hvd::launcher {

// The line that precedes an agent's first frame. The cookie in it is random and not secret: the launcher made it for
// this agent and passed it as an argument, so that it is not taken for something that a shell's start-up files print.
std::string hello_line(const std::string& cookie);
// 32 lower-case hex digits.
std::string make_cookie();
bool is_cookie(std::string_view text);

// Finds the hello line in what an agent's stdout brings first. Externally synchronised.
class CookieScanner {
 public:
  static constexpr std::size_t kMaxNoise = std::size_t{1024} * 1024;

  explicit CookieScanner(const std::string& cookie) : wanted_(hello_line(cookie)) {}

  // Once the line has been seen: what followed it in this chunk. Before: nullopt.
  std::optional<Bytes> feed(ByteSpan chunk);
  // More came before the line than any start-up file prints.
  bool given_up() const { return noise_bytes_ > kMaxNoise; }

 private:
  std::string wanted_;
  std::string window_;  // the end of the noise that may be the beginning of the line
  std::size_t noise_bytes_ = 0;
};

}  // namespace hvd::launcher
