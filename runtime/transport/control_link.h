#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/base/bytes.h"
#include "runtime/base/status.h"
#include "runtime/loop/poll.h"
#include "runtime/transport/control_frame.h"
#include "runtime/transport/fork_guard.h"

namespace hvd::transport {

// One control connection: frames out through a queue, frames in through a reader, on the engine's loop. Owned by
// ControlLinksImpl; loop-confined. Ends in one of two ways: the peer's goodbye, or a loss that is reported once.
class ControlLink {
 public:
  // What may be queued for a neighbour that does not read; beyond it counts as lost.
  static constexpr std::size_t kMaxQueued = 1U << 30U;

  struct Events {
    std::function<void(ByteSpan)> message;
    std::function<void(const Status&)> lost;
    std::function<void()> drained;  // after begin_close(): everything is flushed and the peer has closed, or it is gone
  };

  ControlLink(uv_loop_t* loop, ForkFd stream, Events events);

  // Starts watching; messages that came before are delivered from the loop, not from here.
  void start();
  void send(Bytes message);
  // Queues the goodbye; nothing is delivered any more.
  void begin_close();
  bool ended() const { return ended_; }

 private:
  enum class PeerState { kTalking, kSaidGoodbye };

  void on_io(bool readable, bool writable);
  void enqueue(ControlFrameType type, Bytes payload);
  void flush();
  void read_some();
  void handle(const ControlFrame& frame);
  void on_read_end(const Status& why);
  void end();
  void update_watch();

  uv_loop_t* loop_;
  ForkFd stream_;
  Events events_;
  std::optional<loop::Poll> poll_;
  std::deque<Bytes> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t sent_of_front_ = 0;
  ControlFrameReader reader_;
  PeerState peer_ = PeerState::kTalking;
  bool closing_ = false;       // begin_close() was called
  bool write_broken_ = false;  // the reading side will tell why
  bool write_shut_ = false;
  bool ended_ = false;
  Status overflow_;
};

}  // namespace hvd::transport
