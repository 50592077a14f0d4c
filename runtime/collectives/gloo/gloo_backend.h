#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/deadline.h"
#include "runtime/collectives/backend.h"
#include "runtime/transport/data/operations.h"

namespace gloo {
class Context;
}

namespace hvd::collectives {

struct GlooBackendOptions {
  // Longest wait of one message for its peer. Our transport reports a peer's death by itself, so it only has to be
  // long.
  Millis wait_timeout{std::chrono::hours(24 * 365)};
  // Adasum: so many ranks in a row share a host and are averaged first. 1: they are not. Divides the size of the set.
  int adasum_local_size = 1;
  // Reductions whose result for an element does not depend on what it is fused with (HOROVOD_DETERMINISTIC). Slower for
  // large payloads of three and more ranks; with two ranks nothing depends on it anyway.
  bool deterministic = false;
};

// How a backend gets its Gloo context, asks how it stands and aborts it. Thread-safe functions.
struct GlooContextSource {
  // At the first call that needs it (so on the lane's thread), and once.
  std::function<Result<std::shared_ptr<gloo::Context>>()> make;
  // How the context stands; also before it is made. Empty: nothing is known.
  std::function<PeerProgress()> progress{};
  // Every wait in the context fails with this. Empty: only the calls to come do.
  std::function<void(const Status&)> abort{};
  // Connects to these members, by their numbers in the context, at the same time. Empty: one after another, when a
  // message needs it.
  std::function<Status(std::span<const transport::ExpectedMessage>)> connect{};
};

// Collectives over any Gloo context: Gloo's broadcast, allgather and barrier, and the others of our own.
// start() runs the call on the calling thread and calls `done` before it returns; abort() wakes start(). Gloo's
// exceptions end here. It neither knows the transport below the context nor retries anything.
class GlooBackend final : public HostBackend {
 public:
  explicit GlooBackend(GlooContextSource source, GlooBackendOptions options = {});
  ~GlooBackend() override;  // Requires: no call is running

  std::string_view name() const override { return "gloo"; }
  std::string why_not(const CallTraits& call) const override { return why_not_in_host_memory(call); }
  void start(const CollectiveCall& call, Completion done) override;
  void abort(const Status& why) override;
  PeerProgress progress() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The file of the shared object that our calls into Gloo end in. PyTorch's libraries export Gloo symbols of another
// version; calls that were bound to them would corrupt memory, so the binding is checked when the module is loaded.
std::string gloo_library();

}  // namespace hvd::collectives
