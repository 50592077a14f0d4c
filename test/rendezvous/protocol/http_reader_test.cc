#include "rendezvous/protocol/http_reader.h"

#include <catch2/catch.hpp>

#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/limits.h"

using namespace hvd;
using namespace hvd::rendezvous;

namespace {

int status_of(std::string_view text) {
  RequestReader reader;
  reader.feed(as_bytes(text));
  if (reader.problem()) return reader.problem()->status;
  return reader.done() ? 0 : -1;  // -1: more is needed
}

int with_field(const std::string& field) { return status_of("PUT /x HTTP/1.1\r\nHost: x\r\n" + field + "\r\n\r\n"); }

}  // namespace

TEST_CASE("A written request reads back, in whatever pieces it comes", "[unit][http]") {
  const HttpRequest sent{
      .method = "PUT", .target = "/v1/kv/s/k", .authorization = "HVD1 x", .body = {0, 1, 2, '\r', '\n'}};
  const Bytes bytes = write_request(sent, "::1", 80);
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    RequestReader reader;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      CHECK_FALSE(reader.done());
      const ByteSpan part = ByteSpan(bytes).subspan(at, std::min(piece, bytes.size() - at));
      CHECK(reader.feed(part) == part.size());
    }
    REQUIRE(reader.done());
    const HttpRequest got = reader.take();
    CHECK(got.method == sent.method);
    CHECK(got.target == sent.target);
    CHECK(got.authorization == sent.authorization);
    CHECK(got.body == sent.body);
  }
}

TEST_CASE("A written response reads back, and a reader stops at its end", "[unit][http]") {
  HttpResponse sent;
  sent.status = 202;
  sent.signature = "abc";
  sent.body = {5, 6};
  Bytes bytes = write_response(sent);
  const std::size_t size = bytes.size();
  bytes.push_back('H');
  ResponseReader reader;
  CHECK(reader.feed(bytes) == size);
  REQUIRE(reader.done());
  const HttpResponse got = reader.take();
  CHECK(got.status == 202);
  CHECK(got.signature == "abc");
  CHECK(got.body == sent.body);
  CHECK_FALSE(got.close);
  sent.close = true;
  ResponseReader closing;
  closing.feed(write_response(sent));
  CHECK(closing.take().close);
}

TEST_CASE("Heads on which parsers disagree are refused", "[unit][http]") {
  CHECK(with_field("Content-Length: 0") == 0);
  CHECK(with_field("content-length:\t 0 ") == 0);
  CHECK(with_field("Content-Length: 1") == -1);
  CHECK(with_field("Content-Length: +0") == 400);
  CHECK(with_field("Content-Length: -1") == 400);
  CHECK(with_field("Content-Length: 0x0") == 400);
  CHECK(with_field("Content-Length: 0, 0") == 400);
  CHECK(with_field("Content-Length:") == 400);
  CHECK(with_field("Content-Length: 0\r\nContent-Length: 0") == 400);
  CHECK(with_field("Content-Length : 0") == 400);
  CHECK(with_field("Content-Length: 0\r\nA: b\r\n c") == 400);
  CHECK(with_field("Content-Length: 0\r\nA: b\nC: d") == 400);
  CHECK(with_field("Content-Length: 0\r\nA: b\rC: d") == 400);
  CHECK(with_field(std::string("Content-Length: 0\r\nA: b\0c", 25)) == 400);
  CHECK(with_field("Content-Length: 0\r\nno colon") == 400);
  CHECK(with_field("Content-Length: 0\r\n: empty") == 400);
  CHECK(with_field("Content-Length: 0\r\nA(b): c") == 400);
  CHECK(with_field("Content-Length: 0\r\nA\tb: c") == 400);
  CHECK(with_field("Content-Length: 0\r\n\xc3\xa4: c") == 400);
  CHECK(with_field("Content-Length: 0\r\nA: \xc3\xa4 \"x\", y=z\r\nb:") == 0);
  CHECK(with_field("Content-Length: 0\r\nHost: y") == 400);
  CHECK(with_field("Content-Length: 0\r\nAuthorization: a\r\nAuthorization: b") == 400);
  CHECK(with_field("Transfer-Encoding: chunked") == 501);
  CHECK(with_field("Content-Length: 0\r\nTransfer-Encoding: identity") == 501);
  CHECK(with_field("Content-Length: 0\r\nexpect: 100-continue") == 417);
  CHECK(with_field("Content-Length: 0\r\nUpgrade: h2c") == 400);
  CHECK(with_field("A: b") == 411);
}

TEST_CASE("Start lines that are not HTTP/1.1 are refused", "[unit][http]") {
  const auto line = [](const std::string& text) { return status_of(text + "\r\nHost: x\r\n\r\n"); };
  CHECK(line("GET / HTTP/1.1") == 0);
  CHECK(line("GET / HTTP/1.0") == 505);
  CHECK(line("GET / HTTP/2.0") == 505);
  CHECK(line("GET / http/1.1") == 400);
  CHECK(line("GET / HTTP/1.10") == 400);
  CHECK(line("GE(T / HTTP/1.1") == 400);
  CHECK(line("GET HTTP/1.1") == 400);
  CHECK(line("GET /\xc3\xa4 HTTP/1.1") == 400);
  CHECK(line("PURGE * HTTP/1.1") == 0);  // a method and a target; what they mean is the routes' business
  CHECK(line("GET /") == 400);
  CHECK(line("GET  / HTTP/1.1") == 400);
  CHECK(line("GET / HTTP/1.1 ") == 400);
  CHECK(line(" GET / HTTP/1.1") == 400);
  CHECK(line("") == 400);
  CHECK(line("GET /a b HTTP/1.1") == 400);
  CHECK(status_of("GET / HTTP/1.1\r\n\r\n") == 400);  // no Host
  CHECK(status_of("GET / HTTP/1.1\n") == 400);        // refused at once, not at the deadline
  CHECK(status_of(std::string_view("\x16\x03\x01", 3)) == 400);
  CHECK(status_of("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx") == 400);
}

TEST_CASE("Limits on a message hold to the byte", "[unit][http]") {
  const auto target = [](std::size_t size) {
    return status_of("GET /" + std::string(size - 1, 'x') + " HTTP/1.1\r\nHost: x\r\n\r\n");
  };
  CHECK(target(kMaxTargetBytes) == 0);
  CHECK(target(kMaxTargetBytes + 1) == 414);
  CHECK(target(kMaxTargetBytes * 3) == 414);
  const auto head = [](std::size_t size) {
    const std::string before = "GET / HTTP/1.1\r\nHost: x\r\nA: ";
    return status_of(before + std::string(size - before.size() - 4, 'x') + "\r\n\r\n");
  };
  CHECK(head(kMaxHeadBytes) == 0);
  CHECK(head(kMaxHeadBytes + 1) == 431);
  const auto fields = [](std::size_t count) {
    std::string text = "GET / HTTP/1.1\r\nHost: x\r\n";
    for (std::size_t i = 1; i < count; ++i) text += "A: b\r\n";
    return status_of(text + "\r\n");
  };
  CHECK(fields(kMaxHeaderFields) == 0);
  CHECK(fields(kMaxHeaderFields + 1) == 431);
  CHECK(with_field("Content-Length: " + std::to_string(kMaxBodyBytes)) == -1);
  CHECK(with_field("Content-Length: " + std::to_string(kMaxBodyBytes + 1)) == 413);
}

TEST_CASE("A response says whether the server closes after it", "[unit][http]") {
  const auto closes = [](const std::string& field) {
    ResponseReader reader;
    reader.feed(as_bytes("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + field + "\r\n"));
    REQUIRE(reader.done());
    return reader.take().close;
  };
  CHECK_FALSE(closes(""));
  CHECK_FALSE(closes("Connection: keep-alive\r\n"));
  CHECK_FALSE(closes("Connection: closed\r\n"));
  CHECK(closes("connection: keep-alive, Close\r\n"));
  CHECK(closes("Connection: keep-alive\r\nConnection:close\r\n"));
}

TEST_CASE("Responses that are not ours are refused", "[unit][http]") {
  const auto bad = [](std::string_view text) {
    ResponseReader reader;
    reader.feed(as_bytes(text));
    return reader.problem().has_value();
  };
  CHECK(bad("HTTP/1.1 200 OK\r\n\r\n"));
  CHECK(bad("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
  CHECK(bad("HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n"));
  CHECK(bad("HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"));
  CHECK(bad("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
  CHECK(bad("HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n"));
  CHECK(bad("SSH-2.0-OpenSSH\r\n\r\n"));
  CHECK(bad("HTTP/1.1 20x OK\r\nContent-Length: 0\r\n\r\n"));
  CHECK(bad("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"));
  CHECK(bad("HTTP/1.1 -20 OK\r\nContent-Length: 0\r\n\r\n"));
  CHECK(bad("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nHVD-Signature: a\r\nhvd-signature: b\r\n\r\n"));
  CHECK_FALSE(bad("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
}
