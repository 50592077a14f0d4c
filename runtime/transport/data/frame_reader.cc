#include "runtime/transport/data/frame_reader.h"

#include <algorithm>
#include <cerrno>

#include "runtime/base/failpoint.h"

namespace hvd::transport {

FrameReader::FrameReader(int from, std::uint64_t epoch, FrameSink& sink)
    : from_(from), epoch_(epoch), sink_(sink), stage_(std::make_unique<std::uint8_t[]>(kStageSize)) {}

FrameReader::Outcome FrameReader::read_from(Stream& stream) {
  iovec parts[2];
  std::size_t count = 0;
  std::size_t asked = 0;
  std::size_t piece_asked = 0;
  if (piece_left_ > 0) {
    // The stage is empty: it was used up before the piece went on. A piece that nobody wants goes through the stage.
    const bool wanted = target_ != nullptr && target_->data != nullptr;
    if (wanted) {
      piece_asked = piece_left_;
      parts[count++] = {target_->data + header_.offset + (header_.length - piece_left_), piece_left_};
    }
  } else if (stage_at_ > 0) {
    std::memmove(stage_.get(), stage_.get() + stage_at_, staged());
    stage_end_ = staged();
    stage_at_ = 0;
  }
  parts[count++] = {stage_.get() + stage_end_, kStageSize - stage_end_};
  for (std::size_t i = 0; i < count; ++i) asked += parts[i].iov_len;

  const ssize_t n = HVD_FAILPOINT_IO("data.receive", count, stream.receive({parts, count}));
  if (n == 0) return Outcome::kClosed;
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Outcome::kDrained;
    if (errno == EINTR) return Outcome::kMore;
    error_ = lost_stream(errno);
    return Outcome::kFailed;
  }
  const auto got = static_cast<std::size_t>(n);
  bytes_read_.fetch_add(got, std::memory_order_relaxed);
  const std::size_t direct = std::min(got, piece_asked);
  stage_end_ += got - direct;
  if (direct > 0) piece_received(direct);
  handle_stage();
  if (!error_.is_ok()) return Outcome::kFailed;
  return got < asked ? Outcome::kDrained : Outcome::kMore;
}

void FrameReader::handle_stage() {
  while (error_.is_ok()) {
    const bool going = piece_left_ > 0 ? take_piece_from_stage() : in_frame_ ? handle_small_frame() : begin_frame();
    if (!going) break;
  }
  if (staged() == 0) stage_at_ = stage_end_ = 0;
}

bool FrameReader::begin_frame() {
  if (staged() < kFrameHeaderSize) return false;
  auto header = FrameHeader::decode({stage_.get() + stage_at_, kFrameHeaderSize});
  if (!header.is_ok()) {
    error_ = header.status();
    return false;
  }
  header_ = header.value();
  if (header_.epoch != epoch_) {
    error_ = Status::precondition("data frame of another epoch");
    return false;
  }
  stage_at_ += kFrameHeaderSize;
  in_frame_ = true;
  if (header_.type != FrameType::kData) return true;
  auto target = sink_.on_data_begin(from_, header_);
  if (!target.is_ok()) {
    error_ = target.status();
    return false;
  }
  target_ = target.value();
  piece_left_ = header_.length;
  return true;
}

// Everything but data: the payload fits the stage.
bool FrameReader::handle_small_frame() {
  static_assert(kMaxEager + kFrameHeaderSize <= kStageSize && kMaxFailText <= kMaxEager);
  if (staged() < header_.length) return false;
  const ByteSpan payload(stage_.get() + stage_at_, header_.length);
  stage_at_ += header_.length;
  in_frame_ = false;
  if (header_.type == FrameType::kConsumed) {
    returned_budget_ += header_.total;
  } else if (header_.type == FrameType::kEager) {
    error_ = sink_.on_eager(from_, header_, payload);
  } else {
    error_ = sink_.on_notice(from_, header_, payload);
  }
  return true;
}

bool FrameReader::take_piece_from_stage() {
  const std::size_t size = std::min(staged(), piece_left_);
  if (size == 0) return false;
  if (target_ != nullptr && target_->data != nullptr) {
    std::memcpy(target_->data + header_.offset + (header_.length - piece_left_), stage_.get() + stage_at_, size);
  }
  stage_at_ += size;
  piece_received(size);
  return true;
}

void FrameReader::piece_received(std::size_t size) {
  piece_left_ -= size;
  if (piece_left_ > 0) return;
  in_frame_ = false;
  RecvOp* const op = std::exchange(target_, nullptr);
  if (op != nullptr) sink_.on_data_end(header_, *op);
}

}  // namespace hvd::transport
