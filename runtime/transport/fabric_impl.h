#pragma once

#include <memory>
#include <optional>

#include "runtime/base/mutex.h"
#include "runtime/loop/loop.h"
#include "runtime/transport/control_inbox.h"
#include "runtime/transport/data_plane.h"
#include "runtime/transport/fabric.h"
#include "runtime/transport/listener.h"
#include "runtime/transport/net_watch.h"

namespace hvd::transport {

// Composition root of the transport: owns hvd-net, the listener, the inbox of control connections and the data plane,
// and routes authenticated streams to them. In a forked child every call fails and the destructor leaves everything
// behind: its threads do not exist there.
class FabricImpl final : public Fabric {
 public:
  FabricImpl(const FabricOptions& options, AddressRow row, std::vector<ForkFd> listening);
  ~FabricImpl() override;

  const Bytes& address_row() const override { return encoded_row_; }
  Status open(std::uint64_t epoch, const crypto::Secret& secret, RowSource& rows) override;
  Result<std::unique_ptr<ControlLinks>> connect_control(uv_loop_s* engine_loop,
                                                        std::function<void(std::function<void()>)> post, int parent,
                                                        std::span<const int> children, ControlHandler& handler,
                                                        Deadline deadline) override;
  Result<std::shared_ptr<gloo::Context>> make_context(std::uint64_t context_id, std::vector<int> ranks) override;
  ContextProgress progress(std::uint64_t context_id) override;
  void abort_context(std::uint64_t context_id, const Status& why) override;
  void abort(const Status& why) override;

 private:
  // The parts that have threads or sockets, so that a forked child can leave them alone as a whole.
  struct Parts {
    ControlInbox inbox;
    std::shared_ptr<DataPlane> data;
    std::unique_ptr<Listener> listener;  // hvd-net only, like net_watch
    std::unique_ptr<NetWatch> net_watch;
    loop::Loop net{"hvd-net"};  // last: its thread ends first
  };
  // What open() fixed.
  struct Session {
    std::uint64_t epoch;
    crypto::Secret control_key;
    RowSource& rows;
  };

  Status usable() const;
  Result<Session> session();
  void on_stream(const Hello& hello, ForkFd stream);
  Result<ControlStream> connect_parent(const Session& session, int parent, Deadline deadline);

  const FabricOptions options_;
  const AddressRow row_;
  const Bytes encoded_row_;
  const int generation_;
  std::unique_ptr<Parts> parts_;
  Mutex mutex_;
  std::optional<Session> session_;
};

}  // namespace hvd::transport
