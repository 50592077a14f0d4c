#include "rendezvous/protocol/http_reader.h"

#include <algorithm>
#include <charconv>

#include "rendezvous/protocol/limits.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kVersion = "HTTP/1.1";

std::optional<HttpProblem> check_version(std::string_view text) {
  if (text == kVersion) return std::nullopt;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool is_version = text.size() == kVersion.size() && text.starts_with("HTTP/") && is_digit(text[5]) &&
                          text[6] == '.' && is_digit(text[7]);
  if (is_version) return HttpProblem{505, "only HTTP/1.1 is spoken here"};
  return HttpProblem{400, "a start line without a version of HTTP"};
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
    const ByteSpan part = bytes.subspan(taken, std::min(bytes.size() - taken, body_size_ - body_.size()));
    body_.insert(body_.end(), part.begin(), part.end());
    taken += part.size();
  }
  return taken;
}

std::optional<HttpProblem> RequestReader::parse_head(const HttpHead& head) {
  // method SP target SP version
  const std::string_view line = head.start_line();
  const std::size_t first = std::min(line.find(' '), line.size());
  const std::size_t last = line.rfind(' ');
  if (first >= last || last == std::string_view::npos)
    return HttpProblem{400, "a start line that is not method, target and version"};
  request_.method = line.substr(0, first);
  request_.target = line.substr(first + 1, last - first - 1);
  request_.authorization = head.value("Authorization");
  if (!is_http_token(request_.method)) return HttpProblem{400, "a method that is no token"};
  const bool visible = std::ranges::all_of(request_.target, [](char c) { return c > ' ' && c < 0x7f; });
  if (request_.target.empty() || !visible) return HttpProblem{400, "a target that is not visible ASCII"};
  if (auto problem = check_version(line.substr(last + 1))) return problem;
  if (request_.target.size() > kMaxTargetBytes) {
    return HttpProblem{414, "a target of more than " + std::to_string(kMaxTargetBytes) + " bytes"};
  }
  if (head.count("Host") != 1) return HttpProblem{400, "not exactly one Host"};
  if (head.count("Authorization") > 1) return HttpProblem{400, "more than one Authorization"};
  const bool has_body = request_.method == "PUT" || request_.method == "POST";
  if (has_body && !head.content_length()) return HttpProblem{411, request_.method + " without Content-Length"};
  if (!has_body && head.content_length().value_or(0) != 0) return HttpProblem{400, request_.method + " with a body"};
  return std::nullopt;
}

HttpRequest RequestReader::take() {
  HVD_CHECK(done(), "the request is not complete");
  request_.body = take_body();
  return std::move(request_);
}

std::optional<HttpProblem> ResponseReader::parse_head(const HttpHead& head) {
  // version SP three digits SP reason; HttpHead has seen to the version.
  const std::string_view line = head.start_line().substr(kVersion.size() + 1);
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), response_.status);
  if (error != std::errc() || end != line.data() + 3 || line.size() < 4 || line[3] != ' ')
    return HttpProblem{400, "a start line without a status of three digits"};
  if (head.count(kSignatureField) > 1) return HttpProblem{400, "more than one signature"};
  response_.signature = head.value(kSignatureField);
  response_.close = head.has_word("Connection", "close");
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
