// The bodies of requests. They are decoded only after the signature was checked, and must hold
// without that. The first byte picks the kind.

#include <algorithm>

#include "rendezvous/protocol/bodies.h"
#include "runtime/base/check.h"

using namespace hvd;
using namespace hvd::rendezvous;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteSpan bytes(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      if (const auto body = decode_session(bytes); body.is_ok()) {
        HVD_CHECK(std::ranges::equal(encode_session(body.value()), bytes), "one encoding");
      }
      break;
    case 1:
      if (const auto body = decode_join(bytes); body.is_ok()) {
        HVD_CHECK(std::ranges::equal(encode_join(body.value()), bytes), "one encoding");
      }
      break;
    case 2:
      if (const auto body = decode_get_many(bytes); body.is_ok()) {
        HVD_CHECK(std::ranges::equal(encode_get_many(body.value()), bytes), "one encoding");
      }
      break;
    default:
      if (const auto body = decode_not_yet(bytes); body.is_ok()) {
        HVD_CHECK(std::ranges::equal(encode_not_yet(body.value()), bytes), "one encoding");
      }
  }
  return 0;
}
