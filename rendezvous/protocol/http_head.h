#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace hvd::rendezvous {

// Why a message can't be read: the HTTP status to answer with, and the reason in words.
struct HttpProblem {
  int status = 400;
  std::string reason;
};

// Collects the head of a message (start line and fields, up to and with the empty line) and refuses
// early what this protocol never uses and what parsers are known to disagree on: bare LF or CR, NUL
// and other control characters, folded lines, white space around a field's name, more than
// kMaxHeaderFields fields or kMaxHeadBytes bytes, a start line that can't hold a legal target, a
// repeated or signed or listed Content-Length, Transfer-Encoding, Expect, Upgrade. What is left
// goes to Beast's parser. Pure, externally synchronised.
class HttpHead {
 public:
  // `begins_with`: what every head of this kind begins with; anything else is a problem at its
  // first byte, so that nobody waits for the rest of a banner that is no HTTP.
  explicit HttpHead(std::string_view begins_with = "") : begins_with_(begins_with) {}

  // Takes bytes up to the end of the head and returns how many it took.
  std::size_t feed(std::string_view bytes);

  bool done() const { return done_; }
  const std::optional<HttpProblem>& problem() const { return problem_; }
  const std::string& text() const { return text_; }
  // nullopt: no Content-Length. Requires: done().
  std::optional<std::size_t> content_length() const { return content_length_; }

 private:
  bool take(char c);
  void end_line();
  void check_field(std::string_view line);
  void fail(int status, std::string reason);

  const std::string_view begins_with_;  // a literal
  std::string text_;
  std::size_t line_start_ = 0;
  std::size_t fields_ = 0;
  bool started_ = false;  // the start line is complete
  bool done_ = false;
  std::optional<std::size_t> content_length_;
  std::optional<HttpProblem> problem_;
};

}  // namespace hvd::rendezvous
