#include "runtime/transport/data/data_frame.h"

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::transport;

namespace {

bool decodes(const FrameHeader& header) { return FrameHeader::decode(header.encode()).is_ok(); }

}  // namespace

TEST_CASE("A data frame header survives encoding", "[unit][transport]") {
  const FrameHeader header{FrameType::kData, 1000, 1, 2, 3, 4, 2000};
  const FrameHeader again = FrameHeader::decode(header.encode()).value();
  CHECK(again.type == FrameType::kData);
  CHECK(again.length == 1000);
  CHECK(again.epoch == 1);
  CHECK(again.context == 2);
  CHECK(again.slot == 3);
  CHECK(again.offset == 4);
  CHECK(again.total == 2000);
}

TEST_CASE("A data frame header that no rank sends is refused", "[unit][transport]") {
  CHECK(decodes({.type = FrameType::kEager, .length = 0, .total = 0}));
  CHECK(decodes({.type = FrameType::kEager, .length = kMaxEager, .total = kMaxEager}));
  CHECK_FALSE(decodes({.type = FrameType::kEager, .length = kMaxEager + 1, .total = kMaxEager + 1}));
  CHECK_FALSE(decodes({.type = FrameType::kEager, .length = 4, .total = 5}));
  CHECK_FALSE(decodes({.type = FrameType::kEager, .length = 4, .offset = 1, .total = 4}));
  CHECK(decodes({.type = FrameType::kData, .length = kMaxChunk, .total = kMaxChunk}));
  CHECK_FALSE(decodes({.type = FrameType::kData, .length = kMaxChunk + 1, .total = 1U << 30U}));
  CHECK_FALSE(decodes({.type = FrameType::kData, .length = 0, .total = 5}));
  CHECK_FALSE(decodes({.type = FrameType::kData, .length = 6, .total = 5}));
  CHECK_FALSE(decodes({.type = FrameType::kData, .length = 5, .offset = 1, .total = 5}));
  CHECK_FALSE(decodes({.type = FrameType::kData, .length = 5, .offset = UINT64_MAX - 2, .total = UINT64_MAX}));
  CHECK_FALSE(decodes({.type = FrameType::kRequest, .length = 1, .total = 5}));
  CHECK(decodes({.type = FrameType::kCredit, .offset = 1, .total = 5}));
  CHECK_FALSE(decodes({.type = FrameType::kCredit, .total = 5}));
  CHECK_FALSE(decodes({.type = FrameType::kCredit, .length = 1, .offset = 1, .total = 5}));
  CHECK_FALSE(decodes({.type = FrameType::kBegin, .offset = 1, .total = 5}));
  CHECK_FALSE(decodes({.type = FrameType::kConsumed, .total = kEagerBudget + 1}));
  CHECK_FALSE(decodes({.type = FrameType::kFail, .length = kMaxFailText + 1}));
  CHECK_FALSE(decodes({.type = static_cast<FrameType>(0)}));
  CHECK_FALSE(decodes({.type = static_cast<FrameType>(8)}));
}

TEST_CASE("A bit that flips in a data frame's header is an error", "[unit][transport]") {
  const auto good = FrameHeader{FrameType::kCredit, 0, 1, 2, 3, 1, 2000}.encode();
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bad = good;
    bad[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
    CHECK_FALSE(FrameHeader::decode(bad).is_ok());
  }
}
