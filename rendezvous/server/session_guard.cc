#include "rendezvous/server/session_guard.h"

#include "rendezvous/protocol/bodies.h"

namespace hvd::rendezvous {

SessionGuard::SessionGuard(const crypto::Secret& store_key) : store_key_(store_key), key_(store_key) {}

SessionGuard::Verdict SessionGuard::check(const Route& route, const HttpRequest& request) {
  const bool opens = route.action == Action::kSession;
  const auto sent = parse_authorization(request.authorization);
  if (!sent || opens == open_) return Verdict::kRefused;  // a session first, and only one
  const crypto::Digest mac = request_mac(key_, request, sent->session, sent->counter);
  if (!crypto::constant_time_equal(mac, sent->mac)) return Verdict::kRefused;
  if (sent->session != session_) return Verdict::kRefused;
  if (opens ? sent->counter != 0 : sent->counter <= last_counter_) return Verdict::kRefused;
  last_counter_ = sent->counter;
  last_mac_ = mac;
  authenticated_ = !opens;
  return opens ? Verdict::kOpensSession : Verdict::kAuthentic;
}

Result<HttpResponse> SessionGuard::open(const HttpRequest& request) {
  HVD_RETURN_IF_ERROR(decode_session(request.body).status());
  session_ = crypto::random_nonce<Nonce>();
  HttpResponse response;
  response.status = 200;
  response.body.assign(session_.begin(), session_.end());
  sign(response);
  key_ = session_key(store_key_, request.body, session_);
  open_ = true;
  return response;
}

void SessionGuard::sign(HttpResponse& response) const { sign_response(key_, last_mac_, response); }

}  // namespace hvd::rendezvous
