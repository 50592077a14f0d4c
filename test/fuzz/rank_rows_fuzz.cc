// What ranks say of themselves when they join, and what rank 0 concludes from it.
#include <cstddef>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/topology/rank_row.h"

namespace {

using namespace hvd;
using namespace hvd::topology;

void check_row(ByteSpan input) {
  const auto row = RankRow::decode(input);
  if (!row.is_ok()) return;
  HVD_CHECK(as_text(row.value().encode()) == as_text(input), "a row with two forms");
}

void check_agreement(ByteSpan input, int size) {
  const auto agreed = decode_agreement(input, size);
  if (!agreed.is_ok()) return;
  HVD_CHECK(agreed.value().capabilities.size() == size, "the capabilities of another number of ranks");
  const HostMap& map = agreed.value().hosts;
  HVD_CHECK(map.size() == size, "a map of another size");
  int ranks = 0;
  for (int host = 0; host < map.hosts(); ++host) ranks += static_cast<int>(map.ranks_on(host).size());
  HVD_CHECK(ranks == size, "a rank that is on no host");
  HVD_CHECK(decode_agreement(encode_agreement(agreed), size).value() == agreed.value(), "what does not come back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan input(data, size);
  check_row(input);
  for (const int ranks : {1, 8, 4096}) check_agreement(input, ranks);
  return 0;
}
