#include "runtime/transport/data/data_frame.h"

#include "runtime/transport/net/frame_check.h"

namespace hvd::transport {
namespace {

// What is wrong with a header whose fields were read, or nothing.
const char* find_fault(const FrameHeader& h) {
  switch (h.type) {
    case FrameType::kEager:
      return h.length == h.total && h.length <= kMaxEager && h.offset == 0 ? nullptr : "an eager message's size";
    case FrameType::kRequest:
    case FrameType::kBegin: return h.length == 0 && h.offset == 0 ? nullptr : "a payload where none belongs";
    case FrameType::kCredit: return h.length == 0 && h.offset != 0 ? nullptr : "no number of a receive, or a payload";
    case FrameType::kConsumed:
      return h.length == 0 && h.total <= kEagerBudget ? nullptr : "a return of more than the eager budget";
    case FrameType::kData:
      if (h.length == 0 || h.length > kMaxChunk) return "a piece's size";
      return h.offset <= h.total && h.length <= h.total - h.offset ? nullptr : "a piece beyond its message";
    case FrameType::kFail: return h.length <= kMaxFailText ? nullptr : "a failure's text";
  }
  return "an unknown type";
}

}  // namespace

std::array<std::uint8_t, kFrameHeaderSize> FrameHeader::encode() const {
  std::array<std::uint8_t, kFrameHeaderSize> out{};
  out[0] = static_cast<std::uint8_t>(type);
  std::memcpy(&out[4], &length, sizeof(length));
  std::memcpy(&out[8], &epoch, sizeof(epoch));
  std::memcpy(&out[16], &context, sizeof(context));
  std::memcpy(&out[24], &slot, sizeof(slot));
  std::memcpy(&out[32], &offset, sizeof(offset));
  std::memcpy(&out[40], &total, sizeof(total));
  put_header_check(out);
  return out;
}

Result<FrameHeader> FrameHeader::decode(ByteSpan bytes) {
  HVD_RETURN_IF_ERROR(verify_header(bytes));
  ByteReader in(bytes);
  FrameHeader header;
  const auto type = in.get<std::uint8_t>();
  header.type = static_cast<FrameType>(type);
  in.take(3);
  header.length = in.get<std::uint32_t>();
  header.epoch = in.get<std::uint64_t>();
  header.context = in.get<std::uint64_t>();
  header.slot = in.get<std::uint64_t>();
  header.offset = in.get<std::uint64_t>();
  header.total = in.get<std::uint64_t>();
  HVD_RETURN_IF_ERROR(in.finish("data frame header"));
  if (const char* fault = find_fault(header); fault != nullptr) {
    return Status::precondition("data frame of type " + std::to_string(type) + " with " + fault + " (length " +
                                std::to_string(header.length) + ", offset " + std::to_string(header.offset) +
                                ", total " + std::to_string(header.total) + ")");
  }
  return header;
}

}  // namespace hvd::transport
