#pragma once

#include <cstddef>
#include <optional>

#include "rendezvous/protocol/http_head.h"
#include "rendezvous/protocol/http_message.h"
#include "runtime/base/bytes.h"

namespace hvd::rendezvous {

// Reads one HTTP/1.1 request, or one response, from bytes that arrive in any pieces. Holds at most
// kMaxHeadBytes + kMaxBodyBytes, and no more than has arrived. Pure: no socket, no clock, no
// exception. For the next message make a new one.
class HttpReader {
 public:
  // Takes bytes up to the end of the message and returns how many it took; stops for good at a
  // problem.
  std::size_t feed(ByteSpan bytes);

  bool started() const { return head_.started(); }
  bool head_done() const { return head_.done(); }
  // Of the body, as the head has it. Requires: head_done() and no problem.
  std::size_t body_size() const { return body_size_; }
  bool done() const { return head_parsed_ && !problem_ && body_.size() == body_size_; }
  const std::optional<HttpProblem>& problem() const { return problem_; }

 protected:
  explicit HttpReader(std::string_view begins_with = "") : head_(begins_with) {}
  ~HttpReader() = default;

  virtual std::optional<HttpProblem> parse_head(const HttpHead& head) = 0;
  Bytes take_body() { return std::move(body_); }

 private:
  HttpHead head_;
  bool head_parsed_ = false;
  std::size_t body_size_ = 0;
  Bytes body_;
  std::optional<HttpProblem> problem_;
};

class RequestReader final : public HttpReader {
 public:
  // Method, target and authorization. Requires: head_done() and no problem.
  const HttpRequest& head() const { return request_; }
  // Requires: done(). Once.
  HttpRequest take();

 private:
  std::optional<HttpProblem> parse_head(const HttpHead& head) override;
  HttpRequest request_;
};

class ResponseReader final : public HttpReader {
 public:
  ResponseReader() : HttpReader("HTTP/1.1 ") {}

  // Requires: done(). Once.
  HttpResponse take();

 private:
  std::optional<HttpProblem> parse_head(const HttpHead& head) override;
  HttpResponse response_;
};

}  // namespace hvd::rendezvous
