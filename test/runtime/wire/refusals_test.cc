#include "runtime/wire/codec.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>

#include "test/runtime/wire/full_messages.h"

// Bytes that are no message.
namespace hvd::wire {
namespace {

using Catch::Contains;

TEST_CASE("Codec: a message cut at any byte is refused", "[unit][wire]") {
  const Bytes report = encode(full_report());
  for (std::size_t n = 0; n < report.size(); ++n) {
    INFO("first " << n << " of " << report.size() << " bytes");
    REQUIRE_FALSE(decode_report(ByteSpan(report).first(n)).is_ok());
  }
  const Bytes decision = encode(full_decision());
  for (std::size_t n = 0; n < decision.size(); ++n) {
    INFO("first " << n << " of " << decision.size() << " bytes");
    REQUIRE_FALSE(decode_decision(ByteSpan(decision).first(n)).is_ok());
  }
}

TEST_CASE("Codec: bytes left over are refused", "[unit][wire]") {
  Bytes bytes = encode(full_report());
  bytes.push_back(0);
  CHECK_THAT(decode_report(bytes).status().message(), Contains("1 bytes left over"));
}

TEST_CASE("Codec: any flipped byte gives an error or another valid message, which encodes to the same bytes",
          "[unit][wire]") {
  const Bytes good = encode(full_decision());
  int refused = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      Bytes bad = good;
      bad[i] = static_cast<std::uint8_t>(bad[i] ^ flip);
      const auto decoded = decode_decision(bad);
      if (!decoded.is_ok()) {
        ++refused;
      } else {
        REQUIRE(encode(decoded.value()) == bad);
      }
    }
  }
  CHECK(refused > 100);
}

TEST_CASE("Codec: magic, version and kind are checked and named", "[unit][wire]") {
  Bytes bytes = encode(Report{});
  Bytes bad = bytes;
  bad[0] = 'X';
  CHECK_THAT(decode_report(bad).status().message(), Contains("magic"));
  bad = bytes;
  bad[2] = 9;
  CHECK_THAT(decode_report(bad).status().message(), Contains("protocol version 9, this rank speaks 3"));
  CHECK_THAT(decode_decision(bytes).status().message(), Contains("message kind 1, expected 2"));
}

// Encodes a changed request and returns the decoder's message.
template <typename Change>
std::string refusal(Change change) {
  Report report;
  Request request = full_request();
  change(request);
  report.requests = {request};
  return decode_report(encode(report)).status().message();
}

TEST_CASE("Codec: each field of a request has its range", "[unit][wire]") {
  CHECK(refusal([](Request&) {}).empty());
  CHECK_THAT(refusal([](Request& r) { r.rank = -1; }), Contains("requesting rank -1"));
  CHECK_THAT(refusal([](Request& r) { r.rank = static_cast<int>(kMaxRanks); }), Contains("requesting rank 1048576"));
  CHECK_THAT(refusal([](Request& r) { r.process_set = -2; }), Contains("process set -2"));
  CHECK_THAT(refusal([](Request& r) { r.op = OpType{8}; }), Contains("operation 8: expected 0 .. 7"));
  CHECK_THAT(refusal([](Request& r) { r.op = OpType::kJoin; }), Contains("join"));
  CHECK_THAT(refusal([](Request& r) { r.dtype = DataType{13}; }), Contains("element type 13"));
  CHECK_THAT(refusal([](Request& r) { r.reduce_op = ReduceOp{6}; }), Contains("reduction 6"));
  CHECK_THAT(refusal([](Request& r) { r.device = -2; }), Contains("device -2"));
  CHECK_THAT(refusal([](Request& r) { r.root_rank = -2; }), Contains("root rank -2"));
  CHECK_THAT(refusal([](Request& r) { r.name.clear(); }), Contains("empty tensor name"));
  CHECK_THAT(refusal([](Request& r) { r.name.assign(kMaxNameBytes + 1, 'x'); }), Contains("length 4097"));
  CHECK_THAT(refusal([](Request& r) { r.shape = {-1}; }), Contains("dimension -1"));
  CHECK_THAT(refusal([](Request& r) { r.shape = {std::int64_t{1} << 32, 0, std::int64_t{1} << 32}; }),
             Contains("2^63"));
  CHECK_THAT(refusal([](Request& r) { r.group_size = 0; }), Contains("group of 0"));
  CHECK_THAT(refusal([](Request& r) { r.group_key = 0; }), Contains("key 0"));
  CHECK_THAT(refusal([](Request& r) { r.group_size = kMaxGroupSize + 1; }), Contains("group of 1048577"));
  CHECK(refusal([](Request& r) { r.prescale = std::nan(""); }).empty());
}

// Encodes changed runs of ranks, of an allgather or of a broadcast, and returns the decoder's message.
std::string refusal_of_runs(RankRuns runs, bool with_dims) {
  MergedRequest merged = with_dims ? merged_request() : MergedRequest(full_request());
  merged.ranks = std::move(runs);
  Report report;
  report.requests = {merged};
  return decode_report(encode(report)).status().message();
}

TEST_CASE("Codec: runs of ranks have one form and stay within bounds", "[unit][wire]") {
  const int most = static_cast<int>(kMaxRanks);
  CHECK(refusal_of_runs({{0, most, 0}}, false).empty());
  CHECK(refusal_of_runs({{2, 1, 6}, {3, 1, 5}}, true).empty());
  CHECK_THAT(refusal_of_runs({}, false), Contains("requesting rank: none"));
  CHECK_THAT(refusal_of_runs({{1, most, 0}}, false), Contains("1048576 ranks from 1"));
  CHECK_THAT(refusal_of_runs({{1, 0, 0}}, false), Contains("0 ranks from 1"));
  CHECK_THAT(refusal_of_runs({{1, 2, 0}, {3, 1, 0}}, false),
             Contains("requesting rank 3: not ascending, or part of the run before"));
  CHECK_THAT(refusal_of_runs({{1, 2, 0}, {2, 1, 0}}, false), Contains("requesting rank 2: not ascending"));
  CHECK_THAT(refusal_of_runs({{2, 1, 6}, {3, 1, 6}}, true), Contains("requesting rank 3: not ascending, or part"));
  CHECK_THAT(refusal_of_runs({{2, 1, 6}, {3, 1, -1}}, true), Contains("first dimension -1"));
  CHECK_THAT(refusal_of_runs({{2, 1, 5}}, true), Contains("first dimension 6 of a request whose lowest rank has 5"));
}

// A report whose ready bits are these raw runs; everything else is empty.
Bytes with_runs(const std::vector<std::pair<std::uint64_t, std::uint32_t>>& runs) {
  const Bytes empty = encode(Report{});
  ByteWriter out;
  out.put_raw(ByteSpan(empty).first(12));  // header, no stale bits, no requests
  out.put(static_cast<std::uint32_t>(runs.size()));
  for (const auto& [start, length] : runs) {
    out.put(start);
    out.put(length);
  }
  out.put_raw(ByteSpan(empty).subspan(16));
  return out.take();
}

TEST_CASE("Codec: runs of bits are refused unless they are ascending, apart, bounded and not empty", "[unit][wire]") {
  CHECK(decode_report(with_runs({{1, 2}, {4, 1}})).is_ok());
  CHECK_FALSE(decode_report(with_runs({{0, 1}})).is_ok());
  CHECK_FALSE(decode_report(with_runs({{1, 0}})).is_ok());
  CHECK_FALSE(decode_report(with_runs({{1, 2}, {3, 1}})).is_ok());  // one run in two pieces
  CHECK_FALSE(decode_report(with_runs({{5, 1}, {2, 1}})).is_ok());
  CHECK_FALSE(decode_report(with_runs({{~std::uint64_t{0}, 1}})).is_ok());
  CHECK(decode_report(with_runs({{1, kMaxBits}})).is_ok());
  CHECK_FALSE(decode_report(with_runs({{1, kMaxBits}, {kMaxBits + 5, 1}})).is_ok());
  CHECK_FALSE(decode_report(with_runs({{1, kMaxBits + 1}})).is_ok());
}

// A report of ready tensors in runs {first, length, bytes of each}.
Bytes with_tensors(const std::vector<std::array<std::uint64_t, 3>>& runs) {
  const Bytes empty = encode(Report{});
  constexpr std::size_t kAt = 4 + 3 * 4;  // behind the header, stale bits, requests and ready bits
  ByteWriter out;
  out.put_raw(ByteSpan(empty).first(kAt));
  out.put(static_cast<std::uint32_t>(runs.size()));
  for (const auto& [first, length, size] : runs) {
    out.put(first);
    out.put(static_cast<std::uint32_t>(length));
    out.put(static_cast<std::uint16_t>(size));
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(length, 9) * size; ++i) out.put(std::uint8_t{7});
  }
  out.put_raw(ByteSpan(empty).subspan(kAt + 4));
  return out.take();
}

TEST_CASE("Codec: ready tensors are refused unless they are ascending, in one form, small and all there",
          "[unit][wire]") {
  CHECK(decode_report(with_tensors({{1, 2, 4}, {3, 1, 8}, {5, 1, 8}})).is_ok());
  CHECK(decode_report(with_tensors({{1, 1, kMaxElementsBytes}})).is_ok());
  CHECK_FALSE(decode_report(with_tensors({{1, 1, kMaxElementsBytes + 1}})).is_ok());
  CHECK_FALSE(decode_report(with_tensors({{1, 1, 0}})).is_ok());
  CHECK_FALSE(decode_report(with_tensors({{0, 1, 4}})).is_ok());
  CHECK_FALSE(decode_report(with_tensors({{1, 0, 4}})).is_ok());
  CHECK_FALSE(decode_report(with_tensors({{1, 2, 4}, {3, 1, 4}})).is_ok());  // one run in two pieces
  CHECK_FALSE(decode_report(with_tensors({{5, 1, 4}, {2, 1, 4}})).is_ok());
  CHECK_FALSE(decode_report(with_tensors({{5, 2, 4}, {6, 1, 4}})).is_ok());
  CHECK_FALSE(decode_report(with_tensors({{1, 1u << 20, 4}})).is_ok());  // of which nine are there
}

TEST_CASE("Codec: a hostile count does not reserve memory for it", "[unit][wire]") {
  Bytes bytes = encode(Report{});
  for (std::size_t at = 4; at + 4 <= bytes.size(); at += 4) {
    Bytes bad = bytes;
    bad[at] = 0xff;
    bad[at + 1] = 0xff;
    bad[at + 2] = 0x0f;
    CHECK_THAT(decode_report(bad).status().message(), Contains("count 1048575 "));
  }
}

TEST_CASE("Codec: decisions are bounded and have one form", "[unit][wire]") {
  Decision d;
  d.sequence = 1;
  for (std::uint64_t bit = 1; bit <= kMaxItems; ++bit) d.items.emplace_back(CacheHit{CacheBit{bit}});
  Bytes bytes = encode(d);
  CHECK(bytes.size() < 60);
  CHECK(decode_decision(bytes).value().items.size() == kMaxItems);
  const std::size_t length_at = bytes.size() - 1 - 4;  // before the stop flag
  bytes[length_at + 2] = 0x10;
  CHECK_FALSE(decode_decision(bytes).is_ok());

  Decision no_sequence;
  no_sequence.items = {CacheHit{CacheBit{1}}};
  no_sequence.stop = Stop{};
  CHECK_THAT(decode_decision(encode(no_sequence)).status().message(), Contains("sequence 0"));
  Decision cached_error;
  cached_error.sequence = 1;
  cached_error.items = {full_response()};
  std::get<Response>(cached_error.items[0]).error = StatusCode::kAborted;
  CHECK_THAT(decode_decision(encode(cached_error)).status().message(), Contains("cached response with an error"));
}

}  // namespace
}  // namespace hvd::wire
