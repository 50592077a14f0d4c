// The bodies of requests, and of answers. They are decoded only after the signature was checked, and must hold without
// that. The first byte picks the kind.

#include <algorithm>
#include <optional>
#include <vector>

#include "rendezvous/protocol/bodies.h"
#include "runtime/base/check.h"

using namespace hvd;
using namespace hvd::rendezvous;

namespace {

template <typename Decode, typename Encode>
void check_one_encoding(ByteSpan bytes, Decode decode, Encode encode) {
  const auto body = decode(bytes);
  if (!body.is_ok()) return;
  HVD_CHECK(std::ranges::equal(encode(body.value()), bytes), "one encoding");
}

Bytes encode_answer(const Nonce& nonce) { return {nonce.begin(), nonce.end()}; }

Bytes encode_owned(const std::vector<std::optional<Bytes>>& values) {
  std::vector<std::optional<ByteSpan>> spans;
  for (const auto& value : values) spans.push_back(value ? std::optional(ByteSpan(*value)) : std::nullopt);
  return encode_values(spans);
}

// What is no error is one, too, so that its bytes are not those of what it reads as.
void check_error(ByteSpan bytes) {
  const Status error = decode_error(bytes);
  HVD_CHECK(!error.is_ok(), "an error is never OK");
  HVD_CHECK(decode_error(encode_error(error)).to_string() == error.to_string(), "an error stays the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteSpan bytes(data + 1, size - 1);
  switch (data[0] % 9) {
    case 0: check_one_encoding(bytes, decode_session, encode_session); break;
    case 1: check_one_encoding(bytes, decode_join, encode_join); break;
    case 2: check_one_encoding(bytes, decode_get_many, encode_get_many); break;
    case 3: check_one_encoding(bytes, decode_not_yet, encode_not_yet); break;
    case 4: check_one_encoding(bytes, decode_join_answer, encode_join_answer); break;
    case 5: check_one_encoding(bytes, decode_host_news, encode_host_news); break;
    case 6: check_one_encoding(bytes, decode_session_answer, encode_answer); break;
    case 7: check_one_encoding(bytes, decode_values, encode_owned); break;
    default: check_error(bytes);
  }
  return 0;
}
