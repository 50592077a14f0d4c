#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/transport/data/frame_sink.h"

namespace hvd::transport {

// How the messages of one context stand. While operations wait and nothing of theirs moves, two looks are equal.
struct ContextProgress {
  std::uint64_t moved = 0;       // grows with every event of the context and every byte of its messages
  std::vector<int> waits_for{};  // global ranks, ascending: those that some operation needs to go on
  bool operator==(const ContextProgress&) const = default;
};

// The meeting place of sends, receives and arrivals of one context id: matches by (rank, slot), first come first
// served, and decides what goes eagerly, what needs a request and what has credit. Knows ranks by their global number,
// and connections as FrameSender; no socket, no thread. It may exist before its members are known here, because a peer
// may be faster. Thread-safe. Whoever calls it flushes the connections afterwards and notifies waiters. Owned by the
// DataPlane.
//
// Order: messages of one sender for one slot are sent one after another, so their first frames come in the order of the
// sends; receives match them in the order of posting, and are completed in that order.
class MessageContext {
 public:
  static constexpr std::size_t kMaxUnmatched = 1U << 20U;  // arrivals and credits; a peer that sends more is broken

  using SenderTable = std::function<FrameSender&(int rank)>;
  MessageContext(std::uint64_t id, int own_rank, SenderTable senders)
      : id_(id), own_rank_(own_rank), senders_(std::move(senders)) {}

  std::uint64_t id() const { return id_; }

  // Posts an operation; op.completions->begin() was called. The error is the one that broke the context or lost the
  // peer; then nothing was posted.
  Status send(SendOp op) HVD_EXCLUDES(mutex_);
  Status recv(RecvOp op) HVD_EXCLUDES(mutex_);

  // From the connection to `from`; see FrameSink.
  Status on_eager(int from, const FrameHeader& header, ByteSpan payload) HVD_EXCLUDES(mutex_);
  Status on_request(int from, const FrameHeader& header) HVD_EXCLUDES(mutex_);
  Status on_credit(int from, const FrameHeader& header) HVD_EXCLUDES(mutex_);
  Status on_begin(int from, const FrameHeader& header) HVD_EXCLUDES(mutex_);
  Result<RecvOp*> on_data_begin(int from, const FrameHeader& header) HVD_EXCLUDES(mutex_);
  void on_data_end(const FrameHeader& header, RecvOp& op) HVD_EXCLUDES(mutex_);
  void on_sent(int to, const SentMessage& message) HVD_EXCLUDES(mutex_);

  // Ends every operation, now and later. The first reason stays.
  void fail(const Status& why) HVD_EXCLUDES(mutex_);
  // Ends the operations that need this rank.
  void fail_peer(int rank, const Status& why) HVD_EXCLUDES(mutex_);

  // Counts as movement: every operation posted or ended, every request, credit and piece of a message; and the bytes of
  // a connection while it owes this context a message that both ends have agreed on. What only other contexts move does
  // not.
  ContextProgress progress() HVD_EXCLUDES(mutex_);

  // Forgets the operations of a buffer that goes. Requires: nobody drives I/O (Progress::exclusive). `cancel_queued`
  // takes a send back from its connection. A receive is forgotten silently; a send that is not complete breaks the
  // context on both ends.
  using CancelQueued = std::function<void(int to, std::uint64_t op_id)>;
  void cancel(const Completions& owner, const CancelQueued& cancel_queued) HVD_EXCLUDES(mutex_);
  // Every receive that a driver might still write into. Requires: as cancel().
  void for_each_recv(const std::function<void(const RecvOp&)>& fn) HVD_EXCLUDES(mutex_);

 private:
  struct Credit {
    int from;
    std::uint64_t total;
    std::uint64_t receive;
  };
  // Everything that waits for its counterpart in one slot.
  struct Slot {
    std::vector<std::unique_ptr<SendOp>> sends;  // in the order of posting
    std::vector<std::unique_ptr<RecvOp>> recvs;  // in the order of posting
    std::vector<Arrival> arrivals;
    std::vector<Credit> credits;
    bool empty() const { return sends.empty() && recvs.empty() && arrivals.empty() && credits.empty(); }
  };

  void start_send(Slot& slot, SendOp& op) HVD_REQUIRES(mutex_);
  bool take_credit(Slot& slot, SendOp& op) HVD_REQUIRES(mutex_);
  void give_credit(RecvOp& op) HVD_REQUIRES(mutex_);
  // An early arrival for a receive that is being posted.
  void accept_arrival(RecvOp& op, const Arrival& arrival) HVD_REQUIRES(mutex_);
  // All of a message came in one frame.
  void take_whole(RecvOp& op, ByteSpan payload) HVD_REQUIRES(mutex_);
  Status check_unmatched(int from) HVD_REQUIRES(mutex_);
  void mismatch(int from, std::uint64_t slot, std::uint64_t sent, std::uint64_t expected) HVD_REQUIRES(mutex_);
  void give_up(const SendOp& op) HVD_REQUIRES(mutex_);
  void set_failed(const Status& why) HVD_REQUIRES(mutex_);
  // Ends what is complete of one rank's messages for a slot; `op` of the caller may be gone then.
  void complete_in_order(std::uint64_t slot, int from) HVD_REQUIRES(mutex_);
  void drop_if_empty(std::uint64_t slot) HVD_REQUIRES(mutex_);

  const std::uint64_t id_;
  const int own_rank_;
  const SenderTable senders_;
  Mutex mutex_;
  std::unordered_map<std::uint64_t, Slot> slots_ HVD_GUARDED_BY(mutex_);
  std::size_t unmatched_ HVD_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::uint64_t, RecvOp*> credited_ HVD_GUARDED_BY(mutex_);  // by number; of slots_
  std::uint64_t next_op_id_ HVD_GUARDED_BY(mutex_) = 1;
  std::uint64_t next_receive_ HVD_GUARDED_BY(mutex_) = 1;
  std::uint64_t events_ HVD_GUARDED_BY(mutex_) = 0;  // see progress()
  Status failed_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::transport
