#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "rendezvous/protocol/http_reader.h"
#include "rendezvous/server/client_socket.h"
#include "rendezvous/server/handler.h"
#include "rendezvous/server/server.h"
#include "rendezvous/server/session_guard.h"
#include "runtime/admission/admission.h"
#include "runtime/base/deadline.h"

namespace hvd::rendezvous {

// What a connection needs of its server. On the server's thread.
class ConnectionOwner {
 public:
  virtual Handler& handler() = 0;
  // How long an authenticated client may be silent between requests.
  virtual Millis idle_deadline() const = 0;
  virtual void count(std::uint64_t ServerStats::* counter) = 0;
  // The client's first request was made with the key; it may be a recording.
  virtual void introduced(ConnectionId connection) = 0;
  // The client has shown the key.
  virtual void authenticated(ConnectionId connection) = 0;
  // The replies go to connections whose requests wait.
  virtual void release(std::vector<std::pair<ConnectionId, Reply>> replies) = 0;
  // The connection is closed and must not be used again.
  virtual void closed(ConnectionId connection) = 0;

 protected:
  ~ConnectionOwner() = default;
};

struct ConnectionKeys {
  const crypto::Secret& store;
  const std::optional<crypto::Secret>& tls;  // the client must speak TLS with it
};

// One client's socket: reads a request, has it checked and handled, writes the answer, and so on,
// under absolute deadlines. Loop-confined to the server's thread. Shared by the server's table and
// by its own pending operations (Asio's way: the last one of the two to go ends it). It decides
// nothing about keys and groups; that is the handler's.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionId id, boost::asio::ip::tcp::socket socket, const ConnectionKeys& keys, ConnectionOwner& owner);

  void start();
  // Answers the request that waits; nothing happens when none does.
  void release(const Reply& reply);
  // Ends what passes over the socket, for all processes that have it; to be destroyed then.
  void shut_down() { socket_.shut_down(); }
  // Closes the socket at once.
  void close();

 private:
  enum class State { kShaking, kReading, kWaiting, kWriting, kDraining, kClosed };

  void on_shaken(ClientSocket::Shaken shaken);
  void read();
  void on_read(const boost::system::error_code& error, std::size_t size);
  void consume(std::size_t size);
  // Refuses what is not the request to open a session, while none is; true when it has.
  bool refuse_stranger();
  Millis head_limit() const;
  Millis request_limit() const;
  void dispatch();
  void handle(const Route& route, const HttpRequest& request);
  void answer(const Reply& reply);
  void refuse_route(const HttpProblem& problem, const std::string& method);
  void refuse(int status, const std::string& reason, bool with_body = true);
  void write(const HttpResponse& response);
  void on_written(const boost::system::error_code& error);
  void next_request();
  void drain();
  void arm(TimePoint when);
  void disarm();
  void on_timer();

  const ConnectionId id_;
  ClientSocket socket_;
  boost::asio::steady_timer timer_;
  ConnectionOwner& owner_;
  SessionGuard guard_;

  State state_ = State::kReading;
  std::optional<RequestReader> reader_;
  TimePoint request_start_;
  std::optional<TimePoint> deadline_;
  std::array<std::uint8_t, 8192> in_;
  bool read_pending_ = false;
  std::size_t stashed_ = 0;  // bytes in in_ that came while an answer was being written
  bool close_after_write_ = false;
  std::size_t drained_ = 0;
};

}  // namespace hvd::rendezvous
