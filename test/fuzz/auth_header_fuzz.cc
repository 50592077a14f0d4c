// The value of the field Authorization: whatever parses has exactly one spelling.

#include "rendezvous/protocol/signing.h"
#include "runtime/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = hvd::as_text({data, size});
  const auto parsed = hvd::rendezvous::parse_authorization(text);
  if (parsed) HVD_CHECK(hvd::rendezvous::format_authorization(*parsed) == text, "one spelling");
  return 0;
}
