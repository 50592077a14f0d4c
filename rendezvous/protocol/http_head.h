#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::rendezvous {

// Why a message can't be read: the HTTP status to answer with, and the reason in words.
struct HttpProblem {
  int status = 400;
  std::string reason;
};

// Reads the head of a message (start line and fields, up to and with the empty line), and refuses at
// its first byte what this protocol never uses and what parsers are known to disagree on: bare LF or
// CR, NUL and other control characters, folded lines, a field's name that is no token (white space
// before the colon, say), more than kMaxHeaderFields fields or kMaxHeadBytes bytes, a start line that
// can't hold a legal target, a repeated or signed or listed Content-Length, Transfer-Encoding,
// Expect, Upgrade. What the start line says is the readers' business. Pure, externally synchronised.
class HttpHead {
 public:
  // `begins_with`: what every head of this kind begins with; anything else is a problem at its
  // first byte, so that nobody waits for the rest of a banner that is no HTTP.
  explicit HttpHead(std::string_view begins_with = "") : begins_with_(begins_with) {}

  // Takes bytes up to the end of the head and returns how many it took.
  std::size_t feed(std::string_view bytes);

  bool done() const { return done_; }
  const std::optional<HttpProblem>& problem() const { return problem_; }
  bool started() const { return !text_.empty() || problem_; }
  // Without its end. Requires: done(), and so for all that follows.
  std::string_view start_line() const { return start_line_; }
  // How many fields have this name, in any case, and the value of the first; "" when there is none.
  std::size_t count(std::string_view name) const;
  std::string_view value(std::string_view name) const;
  // Whether a field that is a list ("Connection: a, b") has the word, in any case.
  bool has_word(std::string_view name, std::string_view word) const;
  // nullopt: no Content-Length.
  std::optional<std::size_t> content_length() const { return content_length_; }

 private:
  bool take(char c);
  void end_line();
  void add_field(std::string_view line);
  void check_field(std::string_view name, std::string_view value);
  void fail(int status, std::string reason);

  const std::string_view begins_with_;  // a literal
  std::string text_;
  std::size_t line_start_ = 0;
  bool in_fields_ = false;  // the start line is complete
  std::string start_line_;
  struct Field {
    std::string name;  // in lower case
    std::string value;
  };
  std::vector<Field> fields_;
  bool done_ = false;
  std::optional<std::size_t> content_length_;
  std::optional<HttpProblem> problem_;
};

// Whether the text is what HTTP calls a token: a method, the name of a field.
bool is_http_token(std::string_view text);

}  // namespace hvd::rendezvous
