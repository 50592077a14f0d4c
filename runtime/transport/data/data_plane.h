#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/transport/auth/connector.h"
#include "runtime/transport/data/message_context.h"
#include "runtime/transport/data/peer_link.h"
#include "runtime/transport/data/progress.h"
#include "runtime/transport/net/address_row.h"

namespace hvd::transport {

// The data connections of one rank in one epoch and the message contexts on top of them: routes frames to contexts and
// contexts to connections. Connections are made when first used; of two ranks the higher one connects, so that there is
// nothing to agree on. (A message needs both its ends, so both get to the point where one connects and the other
// waits.) Shared by the fabric and the Gloo contexts, because a context may
// outlive the fabric; then every call fails. Thread-safe. Lock order: the driver's turn (Progress), connecting of one
// peer, rows_mutex_ (held while the store is asked), a context's mutex, a connection's; contexts_mutex_ and
// links_mutex_ are innermost and never held together.
class DataPlane final : public FrameSink, public IoHandler {
 public:
  static constexpr std::size_t kMaxUnknownContexts = 4096;

  // `sockets`: connections of one pair, 1..kMaxSockets, from the first large message on.
  DataPlane(int rank, int size, HostIdentity self, Millis connect_timeout, int sockets);
  ~DataPlane() override;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Progress& progress() { return progress_; }
  const Connector& connector() const { return connector_; }

  // Requires: called once, before everything below.
  void open(std::uint64_t epoch, const crypto::Secret& data_key, bool tls, RowSource& rows);
  // An authenticated data stream of another rank has come, as the `number`th of the pair's.
  void accept(int from, int number, Stream stream, const std::string& host);

  // Why nothing can be done any more: aborted, closed, or used in a forked child. OK otherwise.
  Status usable() const HVD_EXCLUDES(status_mutex_);
  // Cheap part of usable(), for waits.
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  void abort(const Status& why) HVD_EXCLUDES(status_mutex_);
  // Closes every connection. The last call of the fabric.
  void close();

  Result<std::shared_ptr<MessageContext>> add_context(std::uint64_t id) HVD_EXCLUDES(contexts_mutex_);
  void remove_context(const std::shared_ptr<MessageContext>& context) HVD_EXCLUDES(contexts_mutex_);
  ContextProgress progress_of(std::uint64_t context_id) HVD_EXCLUDES(contexts_mutex_);
  void abort_context(std::uint64_t context_id, const Status& why) HVD_EXCLUDES(contexts_mutex_);
  // Forgets the pending operations of a buffer.
  void cancel(MessageContext& context, const Completions& owner);

  // Connects for a message of so many bytes when it is on this rank to do so; blocks for that at most the connect
  // timeout.
  Status ensure_connected(int peer, std::size_t bytes);
  // The same for messages to or from several ranks, at most kConnectsAtOnce at a time, and within the connect timeout
  // in all. The first error is the call's, and ends the tries that go on; those ranks are not lost.
  static constexpr std::size_t kConnectsAtOnce = 16;
  Status ensure_connected(std::span<const ExpectedMessage> messages);
  PeerLink& link(int peer) HVD_EXCLUDES(links_mutex_);
  // As of Fabric. One that cannot be made, or would be too many, is not there then, which is no error.
  void use_sockets(int number);

  // FrameSink, IoHandler: the driver's calls.
  Status on_eager(int from, const FrameHeader& header, ByteSpan payload) override;
  Status on_notice(int from, const FrameHeader& header, ByteSpan payload) override;
  Result<RecvOp*> on_data_begin(int from, const FrameHeader& header) override;
  void on_data_end(const FrameHeader& header, RecvOp& op) override;
  void on_sent(int to, const SentMessage& message) override;
  void on_lost(int peer, const Status& why) override;
  bool on_io(void* tag, bool readable, bool writable) override;
  void check_liveness() override;

 private:
  // What open() fixed.
  struct Session {
    std::uint64_t epoch;
    crypto::Secret key;
    bool tls;
    RowSource& rows;
  };
  // How many connections to the peer a message of so many bytes wants.
  int connections_for(const PeerLink& link, std::size_t bytes) const;
  bool lacks_connection(const ExpectedMessage& message);
  // How long, and by whom.
  struct Attempt {
    const Connector& connector;
    Deadline deadline;
  };
  Status ensure_connected(const ExpectedMessage& message, const Attempt& attempt);
  Status connect(int to, PeerLink& link, int wanted, const Attempt& attempt);
  Status connect_once(const AddressRow& row, int to, PeerLink& link, const Attempt& attempt);
  // The rank is lost to all who wait for it.
  Status lose(int peer, const Status& why);
  Result<Bytes> row_of(int rank, Deadline deadline) HVD_EXCLUDES(rows_mutex_);
  Status fetch_rows_of(const std::vector<ExpectedMessage>& messages, Deadline deadline) HVD_EXCLUDES(rows_mutex_);
  Status fetch_rows(const std::vector<int>& wanted, Deadline deadline) HVD_REQUIRES(rows_mutex_);
  // The context of a frame, made when it is not known yet; null when it was removed.
  Result<std::shared_ptr<MessageContext>> context_of(const FrameHeader& header) HVD_EXCLUDES(contexts_mutex_);
  std::shared_ptr<MessageContext> make_message_context(std::uint64_t id);
  std::vector<std::shared_ptr<MessageContext>> all_contexts() HVD_EXCLUDES(contexts_mutex_);
  // Null when there is none of that number.
  std::shared_ptr<MessageContext> find_context(std::uint64_t id) HVD_EXCLUDES(contexts_mutex_);
  void for_each_link(const std::function<void(PeerLink&)>& fn) HVD_EXCLUDES(links_mutex_);

  const int rank_;
  const int size_;
  const int generation_;
  const HostIdentity self_;
  const Millis connect_timeout_;
  std::atomic<int> sockets_;                 // to make for a pair
  std::atomic<int> used_{kMaxSockets};       // of those that a pair has
  std::atomic<bool> may_do_without_{false};  // more than one for a pair
  std::atomic<int> widened_{0};              // pairs that this rank has, or has tried to give, more than one
  Cancel cancel_;
  Connector connector_;
  Progress progress_;
  std::optional<Session> session_;

  std::vector<std::atomic<PeerLink*>> links_;  // by rank; null until first used
  Mutex links_mutex_;
  std::deque<std::unique_ptr<PeerLink>> owned_links_ HVD_GUARDED_BY(links_mutex_);

  Mutex rows_mutex_;
  std::unordered_map<int, Bytes> rows_ HVD_GUARDED_BY(rows_mutex_);  // of this epoch, as far as asked for

  Mutex contexts_mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<MessageContext>> contexts_ HVD_GUARDED_BY(contexts_mutex_);
  std::unordered_set<std::uint64_t> known_ids_ HVD_GUARDED_BY(contexts_mutex_);  // added here, perhaps removed since

  mutable Mutex status_mutex_;
  Status abort_status_ HVD_GUARDED_BY(status_mutex_);
  std::atomic<bool> aborted_{false};
};

}  // namespace hvd::transport
