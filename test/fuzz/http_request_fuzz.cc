// What anybody on the network can send to the rendezvous server before it has shown a key: the
// request reader, the routes and the check of the signature. The first byte is the size of the
// pieces that the rest arrives in.

#include <algorithm>

#include "rendezvous/protocol/http_message.h"
#include "rendezvous/protocol/http_reader.h"
#include "rendezvous/protocol/limits.h"
#include "rendezvous/protocol/routes.h"
#include "rendezvous/server/session_guard.h"
#include "runtime/base/check.h"

namespace {

using namespace hvd;
using namespace hvd::rendezvous;

std::size_t feed_in_pieces(RequestReader& reader, ByteSpan bytes, std::size_t piece) {
  std::size_t at = 0;
  while (at < bytes.size() && !reader.problem() && !reader.done()) {
    const ByteSpan part = bytes.subspan(at, std::min(piece, bytes.size() - at));
    const std::size_t taken = reader.feed(part);
    HVD_CHECK(taken <= part.size(), "a reader takes what is there");
    HVD_CHECK(taken == part.size() || reader.problem() || reader.done(), "a reader stops only at an end");
    at += taken;
  }
  return at;
}

void check_done(RequestReader& whole, RequestReader& pieces) {
  const HttpRequest request = whole.take();
  const HttpRequest same = pieces.take();
  HVD_CHECK(request.method == same.method && request.target == same.target && request.body == same.body &&
                request.authorization == same.authorization,
            "the pieces make no difference");
  HVD_CHECK(request.target.size() <= kMaxTargetBytes && request.body.size() <= kMaxBodyBytes, "limits hold");

  RequestReader again;
  const Bytes written = write_request(request, "h", 1);
  HVD_CHECK(again.feed(written) == written.size() && again.done(), "what was read can be written and read");
  const HttpRequest back = again.take();
  HVD_CHECK(back.target == request.target && back.body == request.body, "and is the same");

  const RouteOrProblem parsed = parse_route(request.method, request.target);
  if (parsed.problem.status != 0) return;
  HVD_CHECK(method_of(parsed.route.action) == request.method, "a route has one method");
  SessionGuard guard(crypto::Secret::from_bytes(Bytes(32, 1)).value());
  HVD_CHECK(guard.check(parsed.route, request) == SessionGuard::Verdict::kRefused, "nobody signs without the key");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteSpan bytes(data + 1, size - 1);
  RequestReader whole;
  RequestReader pieces;
  const std::size_t used = feed_in_pieces(whole, bytes, bytes.size());
  const std::size_t used_in_pieces = feed_in_pieces(pieces, bytes, data[0] % 64 + 1u);
  HVD_CHECK(used == used_in_pieces, "the pieces make no difference");
  HVD_CHECK(whole.done() == pieces.done(), "the pieces make no difference");
  HVD_CHECK(whole.problem().has_value() == pieces.problem().has_value(), "the pieces make no difference");
  HVD_CHECK(!(whole.done() && whole.problem()), "a message is done or a problem");
  if (whole.problem())
    HVD_CHECK(whole.problem()->status == pieces.problem()->status && whole.problem()->status >= 400, "same");
  if (whole.done()) check_done(whole, pieces);
  return 0;
}
