#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "runtime/base/bytes.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/thread.h"
#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"
#include "runtime/transport/control/control_frame.h"
#include "runtime/transport/net/stream.h"

namespace hvd::transport {

// Receives what arrives on the control connections. Called on the engine's loop only.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  virtual void on_control_message(int from_rank, ByteSpan message) = 0;
  // The connection to a neighbour ended (end of file, reset, keepalive): that rank is dead. At most once per rank.
  virtual void on_control_lost(int rank, const Status& why) = 0;
};

// The control connections of one rank to its neighbours in the tree. Confined to the engine's loop, apart from its
// creation. Messages are framed, at most kMaxControlMessage bytes, delivered in order; send never blocks (it queues).
class ControlLinks {
 public:
  static constexpr std::size_t kMaxControlMessage = 64u << 20;
  virtual ~ControlLinks() = default;
  virtual void send(int to_rank, Bytes message) = 0;
  // Flushes what is queued, then closes; `closed` runs on the loop when every handle is gone. Peers that get the
  // goodbye do not report this rank as lost.
  virtual void close(std::function<void()> closed) = 0;
};

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

  ControlLink(uv_loop_t* loop, Stream stream, Events events);

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
  void stop_writing(int how);
  void read_some();
  void handle(const ControlFrame& frame);
  void on_read_end(const Status& why);
  void end();
  void update_watch();

  uv_loop_t* loop_;
  Stream stream_;
  Events events_;
  std::optional<loop::Poll> poll_;
  std::optional<loop::Timer>
      go_on_;  // in the loop's next turn, with what the stream has and the socket will not tell of
  std::deque<Bytes> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t sent_of_front_ = 0;
  ControlFrameReader reader_;
  PeerState peer_ = PeerState::kTalking;
  bool closing_ = false;       // begin_close() was called
  bool write_broken_ = false;  // the reading side will tell why
  bool held_back_ = false;     // the stream took what the socket has no room for
  bool write_shut_ = false;
  bool ended_ = false;
  Status overflow_;
};

// The state of ControlLinks, shared by the engine's object and the hand-over posted to the engine's loop: whichever
// ends last frees it. Loop-confined from start() on.
class ControlLinkSet {
 public:
  // How long close() waits for neighbours to close their side, so that no reset overtakes the goodbye.
  static constexpr Millis kCloseLimit{250};

  ControlLinkSet(uv_loop_t* loop, ControlHandler& handler) : loop_(loop), handler_(handler) {}

  void add(int rank, Stream stream, std::string host);
  void start();
  void send(int to_rank, Bytes message);
  void close(std::function<void()> closed);
  // The owner is gone: nothing is delivered any more.
  void release();

 private:
  void finish_close();

  void check_thread() const { HVD_DCHECK(thread_.is_current(), "control links belong to the engine's loop"); }

  ThreadChecker thread_;
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
