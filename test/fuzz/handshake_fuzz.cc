// The acceptor's handshake against any bytes: it never reads more than it wants, never finishes without the key, and
// its answer does not depend on how the bytes are cut. The first byte says where the cut is.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/transport/auth/handshake.h"

namespace {

using namespace hvd;
using namespace hvd::transport;

crypto::Secret key(std::uint8_t fill) { return crypto::Secret::from_bytes(Bytes(crypto::kSecretSize, fill)).value(); }

struct Ending {
  bool failed;
  std::size_t used;
  Bytes output;
};

Ending run_acceptor(ByteSpan input, std::size_t piece) {
  Nonce nonce;
  nonce.fill(3);
  AcceptorHandshake acceptor(nonce);
  const AcceptorIdentity identity{1, 0, 2, key(1), key(2)};
  Ending ending{false, 0, {}};
  for (;;) {
    if (acceptor.needs_identity()) acceptor.admit(identity);
    const Bytes output = acceptor.take_output();
    ending.output.insert(ending.output.end(), output.begin(), output.end());
    const std::size_t n = std::min({piece, acceptor.wanted(), input.size() - ending.used});
    if (n == 0) break;
    acceptor.feed(input.subspan(ending.used, n));
    ending.used += n;
  }
  HVD_CHECK(!acceptor.done(), "finished without the key");
  ending.failed = acceptor.failed();
  return ending;
}

void run_connector(ByteSpan input) {
  ConnectorHandshake connector(Hello{}, key(2));
  std::size_t used = 0;
  while (connector.wanted() > 0 && used < input.size()) {
    const std::size_t n = std::min(connector.wanted(), input.size() - used);
    connector.feed(input.subspan(used, n));
    used += n;
  }
  HVD_CHECK(!connector.done(), "finished without the key");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteSpan input(data + 1, size - 1);
  const Ending whole = run_acceptor(input, input.size());
  const Ending cut = run_acceptor(input, 1U + data[0] % 40U);
  HVD_CHECK(whole.failed == cut.failed && whole.used == cut.used && whole.output == cut.output, "the cut matters");
  run_connector(input);
  return 0;
}
