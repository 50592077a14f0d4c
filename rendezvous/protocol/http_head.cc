#include "rendezvous/protocol/http_head.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "rendezvous/protocol/limits.h"
#include "runtime/base/split.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kTokenSigns = "!#$%&'*+-.^_`|~";
constexpr std::size_t kMaxStartLine = kMaxTargetBytes + 64;  // and a method and a version

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool is_http_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kTokenSigns.find(c) != std::string_view::npos;
  });
}

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
    if (!in_fields_ && text_.size() > kMaxStartLine) {
      fail(414, "a start line of more than " + std::to_string(kMaxStartLine) + " bytes");
    }
    if (c == '\n') end_line();
  }
  return !problem_;
}

void HttpHead::end_line() {
  const std::string_view line = std::string_view(text_).substr(line_start_, text_.size() - 2 - line_start_);
  line_start_ = text_.size();
  if (!in_fields_) {
    in_fields_ = true;
    start_line_ = line;
    if (line.empty()) fail(400, "an empty line before the start line");
  } else if (line.empty()) {
    done_ = true;
  } else if (fields_.size() == kMaxHeaderFields) {
    fail(431, "more than " + std::to_string(kMaxHeaderFields) + " header fields");
  } else {
    add_field(line);
  }
}

void HttpHead::add_field(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') return fail(400, "a folded header field");
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return fail(400, "a header line without a field name");
  if (!is_http_token(line.substr(0, colon))) return fail(400, "a field name that is no token");
  std::string name = lower_case(line.substr(0, colon));
  const std::string_view value = trim(line.substr(colon + 1));
  check_field(name, value);
  fields_.push_back({std::move(name), std::string(value)});
}

void HttpHead::check_field(std::string_view name, std::string_view value) {
  if (name == "content-length") {
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
  } else if (name == "transfer-encoding") {
    fail(501, "Transfer-Encoding is not supported");
  } else if (name == "expect") {
    fail(417, "Expect is not supported");
  } else if (name == "upgrade") {
    fail(400, "Upgrade is not supported");
  }
}

std::size_t HttpHead::count(std::string_view name) const {
  return static_cast<std::size_t>(std::ranges::count(fields_, lower_case(name), &Field::name));
}

std::string_view HttpHead::value(std::string_view name) const {
  const auto found = std::ranges::find(fields_, lower_case(name), &Field::name);
  return found == fields_.end() ? std::string_view() : std::string_view(found->value);
}

bool HttpHead::has_word(std::string_view name, std::string_view word) const {
  const std::string wanted = lower_case(name);
  for (const Field& field : fields_) {
    if (field.name != wanted) continue;
    const std::string list = lower_case(field.value);
    for (const std::string_view piece : split(list, ',')) {
      if (trim(piece) == lower_case(word)) return true;
    }
  }
  return false;
}

void HttpHead::fail(int status, std::string reason) { problem_ = HttpProblem{status, std::move(reason)}; }

}  // namespace hvd::rendezvous
