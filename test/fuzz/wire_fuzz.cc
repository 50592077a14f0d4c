// Whatever decodes must encode to the same bytes: one message, one form. Both kinds of message, by the kind byte.
#include <cstddef>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/wire/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const hvd::ByteSpan bytes(data, size);
  if (const auto report = hvd::wire::decode_report(bytes); report.is_ok()) {
    const hvd::Bytes again = hvd::wire::encode(report.value());
    HVD_CHECK(hvd::as_text(again) == hvd::as_text(bytes), "a report with two forms");
  }
  if (const auto decision = hvd::wire::decode_decision(bytes); decision.is_ok()) {
    const hvd::Bytes again = hvd::wire::encode(decision.value());
    HVD_CHECK(hvd::as_text(again) == hvd::as_text(bytes), "a decision with two forms");
  }
  return 0;
}
