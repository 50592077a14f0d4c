#include "rendezvous/protocol/http_reader.h"

// Boost 1.74 uses std::exchange without including <utility>, so that goes first.
// clang-format off
#include <utility>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
// clang-format on

#include <algorithm>

#include "rendezvous/protocol/limits.h"

namespace hvd::rendezvous {
namespace {

namespace http = boost::beast::http;

std::string to_string(boost::beast::string_view text) { return {text.data(), text.size()}; }

// Lets Beast read a complete head. The body is not its business: HttpHead has checked the length.
template <typename Parser>
std::optional<HttpProblem> parse(Parser& parser, const std::string& head) {
  boost::beast::error_code error;
  parser.header_limit(kMaxHeadBytes + 1);
  parser.body_limit(kMaxBodyBytes);
  parser.skip(true);
  const std::size_t used = parser.put(boost::asio::buffer(head), error);
  if (error) return HttpProblem{400, error.message()};
  if (!parser.is_header_done() || used != head.size())
    return HttpProblem{400, "an incomplete head"};
  if (parser.get().version() != 11) return HttpProblem{505, "only HTTP/1.1 is spoken here"};
  return std::nullopt;
}

}  // namespace

std::size_t HttpReader::feed(ByteSpan bytes) {
  std::size_t taken = 0;
  if (!problem_ && !head_.done()) {
    taken = head_.feed(as_text(bytes));
    problem_ = head_.problem();
    if (!problem_ && head_.done()) {
      problem_ = parse_head(head_);
      head_parsed_ = !problem_;
      body_size_ = head_.content_length().value_or(0);
    }
  }
  if (!problem_ && head_parsed_) {
    const ByteSpan part =
        bytes.subspan(taken, std::min(bytes.size() - taken, body_size_ - body_.size()));
    body_.insert(body_.end(), part.begin(), part.end());
    taken += part.size();
  }
  return taken;
}

std::optional<HttpProblem> RequestReader::parse_head(const HttpHead& head) {
  http::request_parser<http::empty_body> parser;
  if (auto problem = parse(parser, head.text())) return problem;
  const auto& message = parser.get();
  request_.method = to_string(message.method_string());
  request_.target = to_string(message.target());
  request_.authorization = to_string(message[http::field::authorization]);
  if (request_.target.size() > kMaxTargetBytes) {
    return HttpProblem{414, "a target of more than " + std::to_string(kMaxTargetBytes) + " bytes"};
  }
  if (message.count(http::field::host) != 1) return HttpProblem{400, "not exactly one Host"};
  if (message.count(http::field::authorization) > 1)
    return HttpProblem{400, "more than one Authorization"};
  const bool has_body = request_.method == "PUT" || request_.method == "POST";
  if (has_body && !head.content_length())
    return HttpProblem{411, request_.method + " without Content-Length"};
  if (!has_body && head.content_length().value_or(0) != 0)
    return HttpProblem{400, request_.method + " with a body"};
  return std::nullopt;
}

HttpRequest RequestReader::take() {
  HVD_CHECK(done(), "the request is not complete");
  request_.body = take_body();
  return std::move(request_);
}

std::optional<HttpProblem> ResponseReader::parse_head(const HttpHead& head) {
  http::response_parser<http::empty_body> parser;
  if (auto problem = parse(parser, head.text())) return problem;
  const auto& message = parser.get();
  response_.status = static_cast<int>(message.result_int());
  response_.signature =
      to_string(message[boost::beast::string_view(kSignatureField.data(), kSignatureField.size())]);
  response_.close = !message.keep_alive();
  if (!head.content_length()) return HttpProblem{400, "a response without Content-Length"};
  if (response_.status < 200) return HttpProblem{400, "an interim response"};
  return std::nullopt;
}

HttpResponse ResponseReader::take() {
  HVD_CHECK(done(), "the response is not complete");
  response_.body = take_body();
  return std::move(response_);
}

}  // namespace hvd::rendezvous
