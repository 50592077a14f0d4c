// What an impostor can answer a rank: the response reader, the check of the signature, and the
// decoders of the answers' bodies (which come after the check, and must hold without it). The first
// byte is the size of the pieces that the rest arrives in.

#include <algorithm>
#include <tuple>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/http_reader.h"
#include "runtime/base/check.h"

namespace {

using namespace hvd;
using namespace hvd::rendezvous;

std::size_t feed_in_pieces(ResponseReader& reader, ByteSpan bytes, std::size_t piece) {
  std::size_t at = 0;
  while (at < bytes.size() && !reader.problem() && !reader.done()) {
    at += reader.feed(bytes.subspan(at, std::min(piece, bytes.size() - at)));
  }
  return at;
}

void check_bodies(ByteSpan body) {
  if (const auto answer = decode_join_answer(body); answer.is_ok()) {
    HVD_CHECK(std::ranges::equal(encode_join_answer(answer.value()), body), "an answer has one encoding");
  }
  if (const auto values = decode_values(body); values.is_ok()) {
    std::vector<std::optional<ByteSpan>> spans;
    for (const auto& value : values.value()) spans.push_back(value ? std::optional(ByteSpan(*value)) : std::nullopt);
    HVD_CHECK(std::ranges::equal(encode_values(spans), body), "values have one encoding");
  }
  HVD_CHECK(!decode_error(body).is_ok(), "an error is an error");
  std::ignore = decode_session_answer(body).is_ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteSpan bytes(data + 1, size - 1);
  ResponseReader whole;
  ResponseReader pieces;
  HVD_CHECK(feed_in_pieces(whole, bytes, bytes.size()) == feed_in_pieces(pieces, bytes, data[0] % 64 + 1u), "same");
  HVD_CHECK(whole.done() == pieces.done(), "the pieces make no difference");
  HVD_CHECK(whole.problem().has_value() == pieces.problem().has_value(), "the pieces make no difference");
  check_bodies(bytes);
  if (!whole.done()) return 0;
  const HttpResponse response = whole.take();
  const HttpResponse same = pieces.take();
  HVD_CHECK(response.status == same.status && response.body == same.body && response.signature == same.signature,
            "same");
  const crypto::Secret key = crypto::Secret::from_bytes(Bytes(32, 1)).value();
  HVD_CHECK(!is_authentic(key, {}, response), "nobody signs without the key");
  check_bodies(response.body);
  return 0;
}
