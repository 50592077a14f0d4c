// What an end of a join connection reads: records under a known key, so that mutations reach what is behind them, and
// the two messages themselves.
#include <cstddef>
#include <cstdint>

#include "launcher/join/join_messages.h"
#include "runtime/base/check.h"
#include "runtime/crypto/sealed_records.h"

using namespace hvd;
using namespace hvd::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const crypto::Secret kKey = crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, 7)).value();
  const ByteSpan input(data, size);
  const auto request = decode_join_request(input);
  if (request.is_ok()) {
    HVD_CHECK(encode(request.value()) == Bytes(input.begin(), input.end()), "a request has one encoding");
    (void)check_host_name(request.value().name);
    HVD_CHECK(!comes_before(request.value().name, request.value().name), "no name comes before itself");
  }
  if (const auto verdict = decode_join_verdict(input); verdict.is_ok()) {
    HVD_CHECK(encode(verdict.value()) == Bytes(input.begin(), input.end()), "a verdict has one encoding");
  }
  // Nobody without the key makes a record that opens, however the stream is cut.
  for (const std::size_t cut : {size, size / 2}) {
    crypto::RecordOpener opener(kKey);
    for (const ByteSpan part : {input.first(cut), input.subspan(cut)}) {
      opener.feed(part);
      const auto next = opener.next();
      HVD_CHECK(!next.is_ok() || !next.value(), "a record that nobody has sealed");
    }
  }
  return 0;
}
