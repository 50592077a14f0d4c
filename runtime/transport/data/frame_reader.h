#pragma once

#include <atomic>
#include <memory>

#include "runtime/transport/data/frame_sink.h"
#include "runtime/transport/net/stream.h"

namespace hvd::transport {

// Cuts the byte stream of a data connection into frames and puts pieces of messages straight into the memory of their
// receives. Driver only (see Progress).
//
// The stage holds what is not such a piece: headers, small messages, and the first bytes of a piece that came in the
// same read as its header. A read asks for the rest of the piece and, behind it, for a stage of what follows.
class FrameReader {
 public:
  FrameReader(int from, std::uint64_t epoch, FrameSink& sink);

  enum class Outcome { kDrained, kMore, kClosed, kFailed };
  // Reads once from `stream` and handles every frame that is complete. kFailed: see error().
  Outcome read_from(Stream& stream);
  const Status& error() const { return error_; }

  void forget_target(const RecvOp* op) {
    if (target_ == op) target_ = nullptr;
  }
  // Since the beginning. Any thread.
  std::uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  // Bytes that the peer got back from its budget since the last call.
  std::size_t take_returned_budget() { return std::exchange(returned_budget_, 0); }

 private:
  static constexpr std::size_t kStageSize = 16U << 10U;

  void handle_stage();
  bool begin_frame();
  bool handle_small_frame();
  bool take_piece_from_stage();
  void piece_received(std::size_t size);
  std::size_t staged() const { return stage_end_ - stage_at_; }

  const int from_;
  const std::uint64_t epoch_;
  FrameSink& sink_;
  std::unique_ptr<std::uint8_t[]> stage_;
  std::size_t stage_at_ = 0;
  std::size_t stage_end_ = 0;

  bool in_frame_ = false;  // header_ is a frame whose payload is not complete
  FrameHeader header_;
  std::size_t piece_left_ = 0;  // of a data frame's payload
  RecvOp* target_ = nullptr;    // where the piece goes; null: nowhere
  std::size_t returned_budget_ = 0;
  std::atomic<std::uint64_t> bytes_read_{0};
  Status error_;
};

}  // namespace hvd::transport
