#pragma once

#include <map>
#include <memory>

#include "runtime/loop/timer.h"
#include "runtime/transport/control_link.h"
#include "runtime/transport/fabric.h"

namespace hvd::transport {

// The state of ControlLinks, shared by the engine's object and the hand-over posted to the engine's loop: whichever
// ends last frees it. Loop-confined from start() on.
class ControlLinkSet {
 public:
  // How long close() waits for neighbours to close their side, so that no reset overtakes the goodbye.
  static constexpr Millis kCloseLimit{250};

  ControlLinkSet(uv_loop_t* loop, ControlHandler& handler) : loop_(loop), handler_(handler) {}

  void add(int rank, ForkFd stream, std::string host);
  void start();
  void send(int to_rank, Bytes message);
  void close(std::function<void()> closed);
  // The owner is gone: nothing is delivered any more.
  void release();

 private:
  void finish_close();

  uv_loop_t* loop_;
  ControlHandler& handler_;
  std::map<int, std::unique_ptr<ControlLink>> links_;
  std::unique_ptr<loop::Timer> close_limit_;
  std::function<void()> closed_;
  bool released_ = false;
};

class ControlLinksImpl final : public ControlLinks {
 public:
  explicit ControlLinksImpl(std::shared_ptr<ControlLinkSet> set) : set_(std::move(set)) {}
  ~ControlLinksImpl() override { set_->release(); }
  void send(int to_rank, Bytes message) override { set_->send(to_rank, std::move(message)); }
  void close(std::function<void()> closed) override { set_->close(std::move(closed)); }

 private:
  std::shared_ptr<ControlLinkSet> set_;
};

}  // namespace hvd::transport
