#pragma once

#include "runtime/transport/data/data_frame.h"
#include "runtime/transport/data/operations.h"
#include "runtime/transport/data/tx_queue.h"

namespace hvd::transport {

// Takes what arrives on data connections. Called by the driver only (see Progress), but on_sent() by any thread that
// writes. An error means that the peer broke the protocol: the connection is closed.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual Status on_eager(int from, const FrameHeader& header, ByteSpan payload) = 0;
  // A request, a credit, a beginning, a failure (its text is the payload).
  virtual Status on_notice(int from, const FrameHeader& header, ByteSpan payload) = 0;
  // A piece begins: the receive it belongs to, or null when nobody wants it any more. Valid until on_data_end() or
  // until the receive's context is removed under Progress::exclusive.
  virtual Result<RecvOp*> on_data_begin(int from, const FrameHeader& header) = 0;
  virtual void on_data_end(const FrameHeader& header, RecvOp& op) = 0;
  // The socket has taken all of the message. May be said again, by another thread and after on_lost() too.
  virtual void on_sent(int to, const SentMessage& message) = 0;
  // The connection has ended; nothing new follows. `why` names the rank.
  virtual void on_lost(int peer, const Status& why) = 0;
};

// What a MessageContext needs of the connections to one rank. Thread-safe; called with the context's mutex held.
class FrameSender {
 public:
  virtual ~FrameSender() = default;
  // False when the peer's eager budget has no room for this many bytes.
  virtual bool reserve_eager(std::size_t size) = 0;
  virtual void queue_eager(const SendOp& op, std::uint64_t context) = 0;
  // Requires: op.receive is the receive that gave credit.
  virtual void queue_message(const SendOp& op, std::uint64_t context) = 0;
  // A request, a credit, a failure with its text.
  virtual void queue_notice(const FrameHeader& header, std::string_view text) = 0;
  // This many bytes of an eager message have left our memory.
  virtual void consumed_eager(std::size_t size) = 0;
  // OK while they can be used or may still come.
  virtual Status lost() const = 0;
  // Bytes that the sockets have taken and given since their beginning.
  virtual std::uint64_t bytes_written() const = 0;
  virtual std::uint64_t bytes_read() const = 0;
};

}  // namespace hvd::transport
