// Frames and rows that ranks exchange: what decodes has one form, and a stream means the same however it is cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/transport/control/control_frame.h"
#include "runtime/transport/data/data_frame.h"
#include "runtime/transport/net/address_row.h"
#include "runtime/transport/net/frame_check.h"

namespace {

using namespace hvd;
using namespace hvd::transport;

void check_data_header(ByteSpan input) {
  if (input.size() < kFrameHeaderSize) return;
  Bytes raw(input.begin(), input.begin() + kFrameHeaderSize);
  put_header_check(raw);  // or nothing would come further
  const auto header = FrameHeader::decode(raw);
  if (!header.is_ok()) return;
  const auto again = header.value().encode();
  HVD_CHECK(std::equal(again.begin(), again.end(), raw.begin()), "a header with two forms");
  HVD_CHECK(header.value().length <= kMaxChunk, "a payload beyond the limit");
}

void check_row(ByteSpan input) {
  const auto row = AddressRow::decode(input);
  if (!row.is_ok()) return;
  HVD_CHECK(as_text(row.value().encode()) == as_text(input), "a row with two forms");
}

// Whatever stands where frames would begin has the right checks.
Bytes with_checks(ByteSpan input) {
  Bytes bytes(input.begin(), input.end());
  for (std::size_t at = 0; bytes.size() - at >= kControlHeaderSize;) {
    const std::span<std::uint8_t> header = std::span(bytes).subspan(at, kControlHeaderSize);
    std::uint32_t length = 0;
    std::memcpy(&length, &header[4], sizeof(length));
    at += kControlHeaderSize;
    const std::size_t size = std::min<std::size_t>(length, bytes.size() - at);
    const std::uint32_t check = check_of(ByteSpan(bytes).subspan(at, size));
    std::memcpy(&header[8], &check, sizeof(check));
    put_header_check(header);
    at += size;
  }
  return bytes;
}

// Every frame as its own bytes again, and whether the stream broke.
Bytes read_control(ByteSpan input, std::size_t piece, bool& broken) {
  ControlFrameReader reader(1000);
  Bytes seen;
  broken = false;
  for (std::size_t at = 0; at < input.size() && !broken; at += piece) {
    const auto part = input.subspan(at, std::min(piece, input.size() - at));
    broken = !reader
                  .feed(part,
                        [&](const ControlFrame& frame) {
                          const Bytes bytes = encode_control_frame(frame.type, frame.payload);
                          seen.insert(seen.end(), bytes.begin(), bytes.end());
                          return true;
                        })
                  .is_ok();
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan input(data, size);
  check_data_header(input);
  check_row(input);
  bool broken = false;
  bool broken_cut = false;
  const Bytes stream = with_checks(input);
  const Bytes whole = read_control(stream, std::max<std::size_t>(size, 1), broken);
  const Bytes cut = read_control(stream, 1U + size % 13U, broken_cut);
  HVD_CHECK(whole == cut && broken == broken_cut, "the cut matters");
  HVD_CHECK(whole.size() <= size && std::equal(whole.begin(), whole.end(), stream.begin()), "bytes were made up");
  return 0;
}
