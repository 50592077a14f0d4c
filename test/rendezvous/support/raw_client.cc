#include "test/rendezvous/support/raw_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>

#include "rendezvous/client/connect.h"
#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/http_reader.h"
#include "runtime/base/socket_io.h"

namespace hvd::rendezvous::test {
namespace {

constexpr Millis kPatience{10000};

}  // namespace

RawClient::RawClient(std::uint16_t port, const std::string& host) {
  auto fd = connect_tcp(host, port, Deadline::after(kPatience), -1);
  if (fd.is_ok()) fd_ = std::move(fd).value();
}

bool RawClient::send(std::string_view bytes) {
  return send_all(fd_.get(), as_bytes(bytes), Deadline::after(kPatience), -1).is_ok();
}

std::optional<HttpResponse> RawClient::receive() {
  ResponseReader reader;
  std::array<std::uint8_t, 4096> buffer;
  const Deadline deadline = Deadline::after(kPatience);
  while (!reader.done()) {
    const auto size = receive_some(fd_.get(), buffer, deadline, -1);
    if (!size.is_ok()) return std::nullopt;
    reader.feed(ByteSpan(buffer.data(), size.value()));
    if (reader.problem()) return std::nullopt;
  }
  return reader.take();
}

int RawClient::status_of(std::string_view request) {
  send(request);
  const auto response = receive();
  return response ? response->status : 0;
}

bool RawClient::closed_within(Millis limit) {
  std::array<std::uint8_t, 1> buffer;
  return receive_some(fd_.get(), buffer, Deadline::after(limit), -1).status().code() == StatusCode::kPeerLost;
}

RawSession::RawSession(std::uint16_t port, const crypto::Secret& secret)
    : raw_(port), store_key_(store_key(secret)), key_(store_key_) {}

bool RawSession::open() {
  HttpRequest request{.method = "POST", .target = "/v1/session", .authorization = "", .body = {}};
  request.body = encode_session(crypto::random_nonce<Nonce>());
  const crypto::Digest mac = sign_request(store_key_, {}, 0, request);
  opening_ = write_request(request, "127.0.0.1", 1);
  if (!raw_.send(opening_)) return false;
  const auto answer = raw_.receive();
  if (!answer || answer->status != 200 || !is_authentic(store_key_, mac, *answer)) return false;
  session_ = decode_session_answer(answer->body).value();
  key_ = session_key(store_key_, request.body, session_);
  return true;
}

Bytes RawSession::sign(const Route& route, ByteSpan body) {
  HttpRequest request{.method = std::string(method_of(route.action)),
                      .target = target_of(route),
                      .authorization = "",
                      .body = Bytes(body.begin(), body.end())};
  sign_request(key_, session_, counter_++, request);
  return write_request(request, "127.0.0.1", 1);
}

std::optional<HttpResponse> RawSession::exchange(const Route& route, ByteSpan body) {
  if (!raw_.send(sign(route, body))) return std::nullopt;
  return raw_.receive();
}

Route key_route(Action action, std::string scope, std::string key, Millis wait) {
  return {.action = action, .scope = std::move(scope), .key = std::move(key), .wait = wait};
}

}  // namespace hvd::rendezvous::test
