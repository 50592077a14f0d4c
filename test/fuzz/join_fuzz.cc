// What an end of a join connection reads: the other's greeting, records under a known key, so that mutations reach what
// is behind them, and the two messages themselves.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/join/join_messages.h"
#include "runtime/base/check.h"
#include "runtime/crypto/sealed_records.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr std::string_view kVersion = "0.29.0";  // of the seeds

// However it is cut: the same answer, the same nonce, the same rest.
void check_greeting(GreetingReader::From from, const crypto::Secret& token, ByteSpan input) {
  GreetingReader whole(from);
  const auto complete = whole.feed(input);
  GreetingReader parts(from);
  auto in_parts = parts.feed(input.first(input.size() / 3));
  if (in_parts.is_ok()) in_parts = parts.feed(input.subspan(input.size() / 3));
  HVD_CHECK(complete.is_ok() == in_parts.is_ok(), "a cut makes or breaks a greeting");
  if (!complete.is_ok()) return;
  HVD_CHECK(complete.value() == in_parts.value(), "a cut completes a greeting");
  if (!complete.value()) return;
  HVD_CHECK(std::ranges::equal(whole.nonce(), parts.nonce()), "a cut moves the nonce");
  HVD_CHECK(std::ranges::equal(whole.rest(), parts.rest()), "a cut moves what follows");
  if (from == GreetingReader::From::kLauncher || !whole.is_proven(token)) return;
  const Bytes again = encode_greeting(token, whole.nonce());
  HVD_CHECK(std::ranges::equal(input.first(again.size()), again), "a greeting that is proven has one encoding");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const crypto::Secret kKey = crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, 7)).value();
  const ByteSpan input(data, size);
  for (const auto from : {GreetingReader::From::kHost, GreetingReader::From::kLauncher}) {
    check_greeting(from, kKey, input);
  }
  const auto request = decode_join_request(input, kVersion);
  if (request.is_ok() && request.value().version == kVersion) {
    HVD_CHECK(encode(request.value()) == Bytes(input.begin(), input.end()), "a request has one encoding");
    for (const std::string& name : {request.value().name, request.value().node}) (void)check_host_name(name);
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
