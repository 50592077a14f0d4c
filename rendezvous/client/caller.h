#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "rendezvous/client/channel.h"
#include "rendezvous/client/client.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd::rendezvous {

// Makes calls to the server: picks the connection, retries, and puts host, port and path into
// errors. Owned by the Client; thread-safe. It knows nothing of what the calls mean.
//
// The mutex guards who uses which channel, not the channels: a channel belongs to the thread that
// holds its lease.
class Caller {
 public:
  explicit Caller(const ClientOptions& options);

  // What no attempt would cure.
  Status check_usable() const;

  // The connection for short calls, or the one for calls that wait; held while a Lease lives.
  enum class Lane { kShort, kLong };
  struct Slot {
    Channel channel;
    bool taken = false;
  };
  class Lease {
   public:
    Lease(Caller& caller, Slot& slot) : caller_(&caller), slot_(&slot) {}
    ~Lease();
    Lease(Lease&& other) noexcept : caller_(other.caller_), slot_(std::exchange(other.slot_, nullptr)) {}
    Lease& operator=(Lease&&) = delete;
    // Ends the session; the server drops what waits in it.
    void hang_up() { slot_->channel.close(); }

   private:
    friend class Caller;
    Caller* caller_;
    Slot* slot_;
  };
  // Waits until no other thread uses the lane. `route` is for the error.
  Result<Lease> take(Lane lane, const Route& route, const Deadline& deadline);

  // Tries until there is an answer or the deadline. An answer is 200, 202 or 404; a refusal by the
  // server becomes its Status. `server_wait` is how long the server may take for it on purpose.
  Result<HttpResponse> call(Lease& lease, const Route& route, ByteSpan body, Millis server_wait,
                            const Deadline& deadline);

  // Tries to connect until the deadline, and gives the server's numeric address.
  Result<std::string> connect(Lease& lease, const Route& route, const Deadline& deadline);

  // All calls that wait, and all later ones, end with kAborted.
  void cancel();

  // "rendezvous 10.0.0.1:4711 /v1/join".
  std::string request_name(const Route& route) const;

 private:
  // Makes attempts, with pauses between them, until one succeeds, one fails for good, or the deadline.
  Status repeat(Channel& channel, const Route& route, Millis server_wait, const Deadline& deadline,
                const std::function<Status(const Deadline&)>& attempt);
  Status pause(Millis& length, const Deadline& deadline);
  void give_back(Slot& slot);

  const std::string host_;
  const std::uint16_t port_;
  const std::optional<Millis> patience_;
  const Fd wake_;  // readable once cancelled
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::condition_variable given_back_;
  Slot short_;  // Slot::taken is guarded by mutex_
  Slot long_;
};

// "30 s", "0.3 s".
std::string seconds_text(SteadyClock::duration span);

}  // namespace hvd::rendezvous
