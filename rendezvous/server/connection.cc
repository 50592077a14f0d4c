#include "rendezvous/server/connection.h"

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/limits.h"
#include "runtime/base/failpoint.h"

namespace hvd::rendezvous {

using boost::system::error_code;

namespace {
constexpr int kUpgradeRequired = 426;
}  // namespace

Connection::Connection(ConnectionId id, boost::asio::ip::tcp::socket socket, const ConnectionKeys& keys,
                       ConnectionOwner& owner)
    : id_(id), socket_(std::move(socket), keys.tls), timer_(socket_.executor()), owner_(owner), guard_(keys.store) {}

// With TLS it begins in shaking. One request goes reading -> (waiting ->) writing -> reading. Bytes that arrive while
// it waits are a second request, which ends the connection; while its answer is being written they are stashed. A
// refusal goes writing -> draining -> closed, and every error and deadline straight to closed, from which nothing leads
// back: callbacks that are still under way find it and return.
void Connection::start() {
  if (!socket_.needs_handshake()) return next_request();
  state_ = State::kShaking;
  arm(SteadyClock::now() + admission::kIntroductionDeadline);
  socket_.shake_hands([self = shared_from_this()](ClientSocket::Shaken shaken) { self->on_shaken(shaken); });
}

void Connection::on_shaken(ClientSocket::Shaken shaken) {
  if (state_ == State::kClosed) return;
  switch (shaken) {
    case ClientSocket::Shaken::kDone: return next_request();
    case ClientSocket::Shaken::kInTheClear:
      owner_.count(&ServerStats::malformed);
      return refuse(kUpgradeRequired, "this job has TLS on: HOROVOD_TLS=1 must be set in all of its processes");
    case ClientSocket::Shaken::kWrongKey: owner_.count(&ServerStats::unauthorized); return close();
    case ClientSocket::Shaken::kFailed: return close();
  }
}

// A client that has shown the key may be silent for a while between requests, anybody else has to
// be quick.
void Connection::next_request() {
  state_ = State::kReading;
  reader_.emplace();
  request_start_ = SteadyClock::now();
  arm(request_start_ + (guard_.authenticated() ? owner_.idle_deadline() : head_limit()));
  if (const std::size_t size = std::exchange(stashed_, 0)) {
    consume(size);
  } else {
    read();
  }
}

void Connection::read() {
  if (std::exchange(read_pending_, true)) return;
  socket_.read(in_, [self = shared_from_this()](const error_code& error, std::size_t size) {
    self->read_pending_ = false;
    self->on_read(error, size);
  });
}

void Connection::on_read(const error_code& error, std::size_t size) {
  if (state_ == State::kClosed) return;
  if (error) return close();
  switch (state_) {
    case State::kReading: return consume(size);
    case State::kWaiting:
      owner_.count(&ServerStats::malformed);
      owner_.handler().forget(id_);
      return refuse(400, "a second request before the answer to the first");
    case State::kWriting:
      stashed_ = size;  // the client may have the answer, and send the next request, before on_written() runs
      return;
    case State::kDraining: drained_ += size; return drained_ > kMaxBodyBytes ? close() : read();
    case State::kShaking:
    case State::kClosed: return;
  }
}

void Connection::consume(std::size_t size) {
  if (guard_.authenticated() && !reader_->started()) request_start_ = SteadyClock::now();
  const std::size_t taken = reader_->feed(ByteSpan(in_.data(), size));
  if (const auto& problem = reader_->problem()) {
    owner_.count(&ServerStats::malformed);
    return refuse(problem->status, problem->reason);
  }
  if (reader_->head_done() && !guard_.is_open() && refuse_stranger()) return;
  if (!reader_->done()) {
    arm(request_start_ + (reader_->head_done() ? request_limit() : head_limit()));
    return read();
  }
  if (taken < size) {
    owner_.count(&ServerStats::malformed);
    return refuse(400, "bytes after the request; one request at a time");
  }
  dispatch();
}

Millis Connection::head_limit() const { return guard_.is_open() ? kHeadDeadline : admission::kIntroductionDeadline; }

Millis Connection::request_limit() const {
  return guard_.is_open() ? kRequestDeadline : admission::kIntroductionDeadline;
}

// Judged by the head: nobody without the key makes the server hold a body.
bool Connection::refuse_stranger() {
  const HttpRequest& head = reader_->head();
  const RouteOrProblem parsed = parse_route(head.method, head.target);
  if (parsed.problem.status != 0) {
    refuse_route(parsed.problem, head.method);
  } else if (parsed.route.action != Action::kSession) {
    owner_.count(&ServerStats::unauthorized);
    refuse(401, "not signed with this job's secret");
  } else if (reader_->body_size() > kMaxSessionBodyBytes) {
    owner_.count(&ServerStats::malformed);
    refuse(413, "a session is opened with at most " + std::to_string(kMaxSessionBodyBytes) + " bytes");
  } else {
    return false;
  }
  return true;
}

void Connection::refuse_route(const HttpProblem& problem, const std::string& method) {
  owner_.count(problem.status == 400 ? &ServerStats::malformed : &ServerStats::refused_routes);
  refuse(problem.status, problem.reason, method != "HEAD");
}

void Connection::dispatch() {
  HVD_FAILPOINT("server.request");
  const HttpRequest request = reader_->take();
  const RouteOrProblem parsed = parse_route(request.method, request.target);
  if (parsed.problem.status != 0) return refuse_route(parsed.problem, request.method);
  switch (guard_.check(parsed.route, request)) {
    case SessionGuard::Verdict::kRefused:
      owner_.count(&ServerStats::unauthorized);
      return refuse(401, "not signed with this job's secret");
    case SessionGuard::Verdict::kOpensSession: {
      const auto opened = guard_.open(request);
      if (opened.is_ok()) {
        owner_.introduced(id_);
        return write(opened.value());
      }
      owner_.count(&ServerStats::malformed);
      return answer({400, encode_error(opened.status())});
    }
    case SessionGuard::Verdict::kAuthentic: return handle(parsed.route, request);
  }
}

void Connection::handle(const Route& route, const HttpRequest& request) {
  owner_.authenticated(id_);
  owner_.count(&ServerStats::requests);
  Handler::Outcome outcome = owner_.handler().handle(id_, route, request.body);
  if (outcome.reply) {
    answer(*outcome.reply);
  } else {
    state_ = State::kWaiting;
    arm(SteadyClock::now() + outcome.wait);
    read();  // to notice that the client closes the connection
  }
  owner_.release(std::move(outcome.released));
}

void Connection::release(const Reply& reply) {
  if (state_ == State::kWaiting) answer(reply);
}

void Connection::answer(const Reply& reply) {
  HVD_FAILPOINT("server.answer");
  HttpResponse response;
  response.status = reply.status;
  response.body = reply.body;
  guard_.sign(response);
  write(response);
}

// Unsigned, because the client has not shown that it knows the key, or its request could not be
// read. The connection ends.
void Connection::refuse(int status, const std::string& reason, bool with_body) {
  HttpResponse response;
  response.status = status;
  response.close = true;
  if (with_body) response.body.assign(reason.begin(), reason.end());
  write(response);
}

void Connection::write(const HttpResponse& response) {
  state_ = State::kWriting;
  close_after_write_ = response.close;
  arm(SteadyClock::now() + kResponseDeadline);
  socket_.write(write_response(response),
                [self = shared_from_this()](const error_code& error, std::size_t) { self->on_written(error); });
}

void Connection::on_written(const error_code& error) {
  if (state_ == State::kClosed) return;
  if (error) return close();
  if (close_after_write_) return drain();
  next_request();
}

// Closing with unread bytes would make the kernel send a reset, which can overtake the answer. So
// the rest is read first.
void Connection::drain() {
  state_ = State::kDraining;
  socket_.half_close();
  arm(SteadyClock::now() + kLingerDeadline);
  read();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();  // the owner lets go of this connection in closed()
  state_ = State::kClosed;
  disarm();
  socket_.close();
  owner_.closed(id_);
}

void Connection::arm(TimePoint when) {
  if (deadline_ == when) return;
  deadline_ = when;
  timer_.expires_at(when);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) self->on_timer();
  });
}

void Connection::disarm() {
  deadline_.reset();
  timer_.cancel();
}

void Connection::on_timer() {
  // A timer that was due already when it was set anew still comes here.
  if (!deadline_ || SteadyClock::now() < *deadline_) return;
  switch (state_) {
    case State::kWaiting: return answer(owner_.handler().expire(id_));
    case State::kReading:
      // Closing a silent session is no reproach: the client opens another one when it needs it.
      if (!guard_.authenticated() || reader_->started()) owner_.count(&ServerStats::late);
      return close();
    case State::kShaking:
    case State::kWriting: owner_.count(&ServerStats::late); return close();
    case State::kDraining: return close();
    case State::kClosed: return;
  }
}

}  // namespace hvd::rendezvous
