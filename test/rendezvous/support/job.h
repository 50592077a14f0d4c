#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/client/client.h"
#include "rendezvous/server/server.h"
#include "runtime/base/deadline.h"

namespace hvd::rendezvous::test {

// The deadline of a call that should succeed: what takes half of it has waited for something that did not come.
inline constexpr Millis kSoon{10000};
inline Deadline soon() { return Deadline::after(kSoon); }

// A job with its server, and clients of it.
struct Job {
  explicit Job(int num_proc, std::vector<std::string> addresses = {"127.0.0.1"},
               crypto::Secret job_secret = crypto::Secret::random())
      : secret(std::move(job_secret)),
        server(Server::start(
                   {.secret = secret, .plan = StaticPlan::of_size(num_proc), .listen_addresses = std::move(addresses)})
                   .value()) {}

  ClientOptions options(const std::string& host = "127.0.0.1") const {
    return {.host = host, .port = server->port(), .secret = secret};
  }
  Client client(const std::string& host = "127.0.0.1") const { return Client(options(host)); }
  Seat seat(int slot, std::uint32_t incarnation = 0) const { return make_seat(seat_key(secret), {slot, incarnation}); }

  crypto::Secret secret;
  std::unique_ptr<Server> server;
};

}  // namespace hvd::rendezvous::test
