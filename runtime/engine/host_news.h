#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "horovod/session.h"
#include "rendezvous/client/client.h"
#include "runtime/base/event.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_annotations.h"

namespace hvd::engine {

// What the launcher of an elastic job says of its hosts during an epoch: values under the keys "1", "2", ... of the
// scope kHostNewsScope. Rank 0 waits for them on a thread of its own, `hvd-host-news`; the others hear of them from
// rank 0, at a commit. Owned by the Network; take() is thread-safe.
class HostNews {
 public:
  HostNews(rendezvous::Client& client, std::uint64_t epoch);
  ~HostNews();  // cancels the client: nobody may need it any more
  HostNews(const HostNews&) = delete;
  HostNews& operator=(const HostNews&) = delete;

  std::vector<HostUpdate> take() HVD_EXCLUDES(mutex_);

 private:
  void listen(std::uint64_t epoch);

  rendezvous::Client& client_;
  Mutex mutex_;
  std::vector<HostUpdate> updates_ HVD_GUARDED_BY(mutex_);
  std::jthread thread_;
};

// While a session of an elastic job begins, one of its ranks may die, and others wait for it to connect: what they do
// not see, the launcher does, and says so under kLossKey. A thread of its own, `hvd-loss-watch`, asks for that when the
// beginning takes long, with a connection of its own; calls `on_loss` at most once, on that thread. Owned by the
// Network until the session has begun.
class LossWatch {
 public:
  LossWatch(const rendezvous::ClientOptions& server, std::uint64_t epoch, std::function<void(const Status&)> on_loss);
  ~LossWatch();
  LossWatch(const LossWatch&) = delete;
  LossWatch& operator=(const LossWatch&) = delete;

 private:
  void listen(const std::string& scope);

  rendezvous::Client client_;
  const std::function<void(const Status&)> on_loss_;
  Event over_;
  std::jthread thread_;
};

}  // namespace hvd::engine
