#include "rendezvous/client/channel.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/http_reader.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/socket_io.h"

namespace hvd::rendezvous {
namespace {

constexpr int kUnauthorized = 401;
constexpr int kUnavailable = 503;
constexpr Millis kLastWords{500};
constexpr std::string_view kNoTlsThere =
    "the server does not speak TLS with the secret of this job (HOROVOD_TLS is on in this process, and must be on in "
    "all or in none)";

// An answer without a signature is never data, but what it says helps people.
Status unsigned_answer(const HttpResponse& response) {
  if (response.status == kUnauthorized) {
    return Status::invalid_argument(
        "the server refuses our signature (401): this process does not have the secret of the job that "
        "listens there");
  }
  if (response.status == kUnavailable) return Status::peer_lost("the server is busy (503)");
  std::string text = "an answer that is not signed, status " + std::to_string(response.status);
  const std::string_view reason = as_text(response.body).substr(0, 200);
  for (std::size_t i = 0; i < reason.size(); ++i) {
    if (i == 0) text += ": ";
    text += reason[i] >= ' ' && reason[i] <= '~' ? reason[i] : '?';
  }
  return Status::internal(text);
}

}  // namespace

Result<HttpResponse> Channel::exchange(const Route& route, ByteSpan body, const Deadline& deadline) {
  may_be_garbled_ = false;
  HVD_RETURN_IF_ERROR(connect(deadline));
  HttpRequest request{.method = std::string(method_of(route.action)),
                      .target = target_of(route),
                      .authorization = "",
                      .body = Bytes(body.begin(), body.end())};
  auto answer = send_signed(std::move(request), deadline);
  if (!answer.is_ok() || answer.value().close) close();
  return answer;
}

Status Channel::connect(const Deadline& deadline) {
  may_be_garbled_ = false;
  if (is_open()) return Status::ok();
  Status opened = open(deadline);
  if (!opened.is_ok()) close();
  return opened;
}

Status Channel::open(const Deadline& deadline) {
  HVD_FAILPOINT_RETURN("client.connect");
  HVD_ASSIGN_OR_RETURN(fd_, connect_tcp(options_.host, options_.port, deadline, options_.wake_fd));
  if (options_.tls_key) {
    tunnel_ = std::make_unique<tls::Tunnel>(fd_.get(), tls::Role::kConnector, *options_.tls_key);
    const Status shaken = tunnel_error(tls::shake_hands(*tunnel_, deadline, options_.wake_fd));
    if (shaken.code() == StatusCode::kPrecondition) return shaken.annotate(std::string(kNoTlsThere));
    HVD_RETURN_IF_ERROR(shaken);
  }
  key_ = options_.store_key;
  session_ = {};
  counter_ = 0;
  HVD_FAILPOINT_RETURN("client.session");
  const Bytes body = encode_session(crypto::random_nonce<Nonce>());
  const Route route{.action = Action::kSession, .scope = "", .key = ""};
  HttpRequest request{
      .method = std::string(method_of(route.action)), .target = target_of(route), .authorization = "", .body = body};
  HVD_ASSIGN_OR_RETURN(const HttpResponse answer, send_signed(std::move(request), deadline));
  if (answer.status != 200) return decode_error(answer.body);
  HVD_ASSIGN_OR_RETURN(session_, decode_session_answer(answer.body));
  key_ = session_key(options_.store_key, body, session_);
  counter_ = 1;
  return Status::ok();
}

Result<HttpResponse> Channel::send_signed(HttpRequest request, const Deadline& deadline) {
  HVD_FAILPOINT_RETURN("client.send");
  const crypto::Digest mac = sign_request(key_, session_, counter_++, request);
  const Bytes bytes = write_request(request, options_.host, options_.port);
  const Status sent = send(bytes, deadline);
  // A server that refuses may answer and close while we still send; the answer, which is there then, says more than
  // "connection reset".
  if (!sent.is_ok() && sent.code() != StatusCode::kPeerLost) return sent;
  const auto last_words = std::min(deadline.when(), SteadyClock::now() + kLastWords);
  auto answer = receive(sent.is_ok() ? deadline : Deadline::at(last_words));
  if (!sent.is_ok() && answer.status().code() == StatusCode::kTimeout) return sent;
  HVD_ASSIGN_OR_RETURN(HttpResponse response, std::move(answer));
  if (response.signature.empty()) return distrusted(unsigned_answer(response));
  if (!is_authentic(key_, mac, response)) return distrusted(Status::internal("an answer with a wrong signature"));
  return response;
}

Result<HttpResponse> Channel::receive(const Deadline& deadline) {
  HVD_FAILPOINT_RETURN("client.receive");
  ResponseReader reader;
  std::array<std::uint8_t, 8192> buffer;
  while (!reader.done()) {
    HVD_ASSIGN_OR_RETURN(const std::size_t size, receive_some(buffer, deadline));
    const std::size_t taken = reader.feed(ByteSpan(buffer.data(), size));
    if (reader.problem()) {
      return distrusted(Status::internal("an answer that is not ours: " + reader.problem()->reason));
    }
    if (taken < size) return distrusted(Status::internal("an answer that is not ours: bytes after its end"));
  }
  return reader.take();
}

Status Channel::distrusted(Status error) {
  may_be_garbled_ = true;
  return error;
}

// TLS ends at whatever changed on its way: at either end, which tells the other, or hangs up.
Status Channel::tunnel_error(Status error) {
  switch (error.code()) {
    case StatusCode::kOk:
    case StatusCode::kPeerLost:
    case StatusCode::kTimeout:
    case StatusCode::kAborted: return error;
    default: return distrusted(std::move(error));
  }
}

Status Channel::send(ByteSpan bytes, const Deadline& deadline) {
  if (tunnel_) return tunnel_error(tls::send_all(*tunnel_, bytes, deadline, options_.wake_fd));
  return send_all(fd_.get(), bytes, deadline, options_.wake_fd);
}

Result<std::size_t> Channel::receive_some(std::span<std::uint8_t> into, const Deadline& deadline) {
  if (!tunnel_) return hvd::receive_some(fd_.get(), into, deadline, options_.wake_fd);
  auto received = tls::receive_some(*tunnel_, into, deadline, options_.wake_fd);
  if (!received.is_ok()) return tunnel_error(received.status());
  return received;
}

void Channel::close() {
  tunnel_.reset();
  fd_.reset();
}

}  // namespace hvd::rendezvous
