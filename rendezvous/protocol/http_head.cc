#include "rendezvous/protocol/http_head.h"

#include <charconv>

#include "rendezvous/protocol/limits.h"

namespace hvd::rendezvous {
namespace {

constexpr std::size_t kMaxStartLine = kMaxTargetBytes + 64;  // and a method and a version

bool equals_ignoring_case(std::string_view a, std::string_view lower) {
  if (a.size() != lower.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char c = a[i] >= 'A' && a[i] <= 'Z' ? static_cast<char>(a[i] - 'A' + 'a') : a[i];
    if (c != lower[i]) return false;
  }
  return true;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::size_t HttpHead::feed(std::string_view bytes) {
  std::size_t taken = 0;
  while (taken < bytes.size() && !done_ && !problem_) {
    if (!take(bytes[taken])) break;
    ++taken;
  }
  return taken;
}

bool HttpHead::take(char c) {
  const bool after_cr = !text_.empty() && text_.back() == '\r';
  const auto code = static_cast<unsigned char>(c);
  if (after_cr != (c == '\n')) {
    fail(400, "a line that does not end in CR LF");
  } else if ((code < 0x20 && c != '\r' && c != '\n' && c != '\t') || code == 0x7f) {
    fail(400, "a control character in the head");
  } else if (text_.size() >= kMaxHeadBytes) {
    fail(431, "a head of more than " + std::to_string(kMaxHeadBytes) + " bytes");
  } else if (text_.size() < begins_with_.size() && c != begins_with_[text_.size()]) {
    fail(400, "a head that does not begin with " + std::string(begins_with_));
  } else {
    text_.push_back(c);
    if (!started_ && text_.size() > kMaxStartLine) {
      fail(414, "a start line of more than " + std::to_string(kMaxStartLine) + " bytes");
    }
    if (c == '\n') end_line();
  }
  return !problem_;
}

void HttpHead::end_line() {
  const std::string_view line =
      std::string_view(text_).substr(line_start_, text_.size() - 2 - line_start_);
  line_start_ = text_.size();
  if (!started_) {
    started_ = true;
    if (line.empty()) fail(400, "an empty line before the start line");
  } else if (line.empty()) {
    done_ = true;
  } else if (++fields_ > kMaxHeaderFields) {
    fail(431, "more than " + std::to_string(kMaxHeaderFields) + " header fields");
  } else {
    check_field(line);
  }
}

void HttpHead::check_field(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') return fail(400, "a folded header field");
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0)
    return fail(400, "a header line without a field name");
  const std::string_view name = line.substr(0, colon);
  if (name.find_first_of(" \t") != std::string_view::npos)
    return fail(400, "white space in a field name");
  const std::string_view value = trim(line.substr(colon + 1));

  if (equals_ignoring_case(name, "content-length")) {
    if (content_length_) return fail(400, "more than one Content-Length");
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
    // from_chars takes digits only: neither a sign, nor white space, nor a list.
    const bool overflow = error == std::errc::result_out_of_range;
    const bool is_number = (error == std::errc() || overflow) && end == value.data() + value.size();
    if (!is_number) return fail(400, "a Content-Length that is not a number");
    if (overflow || length > kMaxBodyBytes)
      return fail(413, "a body of more than " + std::to_string(kMaxBodyBytes) + " bytes");
    content_length_ = length;
  } else if (equals_ignoring_case(name, "transfer-encoding")) {
    fail(501, "Transfer-Encoding is not supported");
  } else if (equals_ignoring_case(name, "expect")) {
    fail(417, "Expect is not supported");
  } else if (equals_ignoring_case(name, "upgrade")) {
    fail(400, "Upgrade is not supported");
  }
}

void HttpHead::fail(int status, std::string reason) {
  problem_ = HttpProblem{status, std::move(reason)};
}

}  // namespace hvd::rendezvous
