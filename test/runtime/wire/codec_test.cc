#include "runtime/wire/codec.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

namespace hvd::wire {
namespace {

using Catch::Contains;

Request full_request() {
  Request r;
  r.rank = 5;
  r.process_set = 2;
  r.op = OpType::kBroadcast;
  r.dtype = DataType::kBfloat16;
  r.reduce_op = ReduceOp::kProduct;
  r.device = 3;
  r.root_rank = 7;
  r.prescale = 0.1;
  r.postscale = -1e300;
  r.shape = {2, 0, std::int64_t{1} << 40};
  r.name = "allreduce.layer/weight:0";
  r.group_key = 0xfedcba9876543210;
  r.group_size = 4;
  return r;
}

// An allgather of ranks whose first dimensions differ.
MergedRequest merged_request() {
  Request first = full_request();
  first.rank = 2;
  first.op = OpType::kAllgather;
  first.shape = {6, 3};
  MergedRequest merged(first);
  merged.ranks = {{2, 3, 6}, {5, 1, 0}, {7, 20, 0}};
  return merged;
}

Report full_report() {
  Report report;
  report.stale_bits = {CacheBit{4}};
  Request odd = full_request();
  odd.shape.clear();
  odd.name = std::string("\0\xff", 2);
  report.requests = {full_request(), odd, merged_request()};
  report.ready_bits = {CacheBit{1}, CacheBit{2}, CacheBit{3}, CacheBit{9}, CacheBit{~std::uint64_t{0} - 5}};
  report.joins = {{0, 3}, {2, 1}};
  report.set_changes = {SetChange{1, SetChange::Kind::kStatic, 0, {}, {digest_of({0, 1}), digest_of({2})}},
                        SetChange{4, SetChange::Kind::kAdd, 0, {{0, 3}}, {}},
                        SetChange{1, SetChange::Kind::kRemove, 3, {}, {}}};
  report.set_changes[2].ranks = {{1, 5, 0}, {8, 1, 0}};
  report.shutdown_ranks = {8, 2};
  report.lost_ranks = {{6, "connection reset"}};
  report.waits.resize(3);
  report.waits[0] = {Wait::Kind::kSubmitted, 2, 0, OpType::kJoin, "join", 0, 17, 0, {3, 8}, {}, ""};
  report.waits[1] = {Wait::Kind::kOverdue, 0, 7, OpType::kAlltoall, "a2a", 5, 1ULL << 40, 61000, {0}, {1, 2},
                     "started a2a"};
  report.waits[2].kind = Wait::Kind::kMoving;
  report.waits[2].ranks = {4, 5};
  return report;
}

Response full_response() {
  Response r;
  r.process_set = 1;
  r.op = OpType::kAllgather;
  r.dtype = DataType::kInt16;
  r.reduce_op = ReduceOp::kMin;
  r.root_rank = 4;
  r.prescale = 2;
  r.postscale = 3;
  r.shape = {5, 6};
  r.name = "g";
  r.group_key = 1;
  r.group_size = 1;
  r.on_gpu = true;
  r.devices_key = 99;
  r.first_dims = {5, 0, 7};
  r.bit = CacheBit{12};
  return r;
}

Decision full_decision() {
  Decision d;
  d.sequence = 17;
  d.limits = {123, 16, true};
  Response error = full_response();
  error.bit = CacheBit::kNone;
  error.joined = {2, 9};
  error.error = StatusCode::kPrecondition;
  error.error_message = "they differ";
  SetDecision sets;
  sets.kind = SetChange::Kind::kStatic;
  sets.entries = {{1, 1, false, {}}, {0, 0, true, {}}};  // every rank knows what it gave to init()
  SetDecision removed;
  removed.kind = SetChange::Kind::kRemove;
  removed.entries = {{1, 0, false, {}}};
  removed.error = StatusCode::kInvalidArgument;
  removed.error_message = "no";
  d.items = {CacheHit{CacheBit{3}},
             CacheHit{CacheBit{4}},
             CacheHit{CacheBit{2}},
             Evict{CacheBit{5}},
             Evict{CacheBit{6}},
             full_response(),
             error,
             sets,
             removed,
             CacheHit{CacheBit{7}},
             WaitAnswer{1ULL << 40}};
  d.stop = Stop{Stop::Kind::kAbort, 3, "rank 3 is lost"};
  return d;
}

TEST_CASE("Codec: reports and decisions survive the round trip", "[unit][wire]") {
  CHECK(decode_report(encode(Report{})).value() == Report{});
  CHECK(decode_report(encode(full_report())).value() == full_report());
  CHECK(decode_decision(encode(full_decision())).value() == full_decision());
  Decision empty;
  empty.sequence = 1;
  CHECK(decode_decision(encode(empty)).value() == empty);
  Decision abort;
  abort.stop = Stop{};
  CHECK(decode_decision(encode(abort)).value() == abort);
}

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
  CHECK_THAT(decode_report(bad).status().message(), Contains("protocol version 9, this rank speaks 2"));
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
  CHECK_THAT(refusal([](Request& r) { r.dtype = DataType{11}; }), Contains("element type 11"));
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

TEST_CASE("Codec: many of the shortest requests are a good report", "[unit][wire]") {
  Request shortest;
  shortest.name = "a";
  Report report;
  report.requests.assign(1000, shortest);
  CHECK(decode_report(encode(report)).value() == report);
}

TEST_CASE("Runs of ranks merge to the fewest, and never twice", "[unit][wire]") {
  RankRuns runs = {{1, 1, 0}, {9, 2, 0}};
  REQUIRE(merge_runs(runs, {{2, 1, 0}, {11, 5, 0}, {20, 1, 0}}));
  CHECK(runs == RankRuns{{1, 2, 0}, {9, 7, 0}, {20, 1, 0}});
  CHECK(count_ranks(runs) == 10);
  CHECK_FALSE(merge_runs(runs, {{15, 1, 0}}));
  CHECK_FALSE(merge_runs(runs, {{0, 2, 0}}));
  CHECK(count_ranks(runs) == 10);
  REQUIRE(merge_runs(runs, {{3, 1, 7}}));  // touches, but has another first dimension
  CHECK(runs.size() == 4);
}

TEST_CASE("Codec: consecutive bits take the room of one, whatever their number", "[unit][wire]") {
  Report report;
  for (std::uint64_t bit = 1000; bit > 0; --bit) report.ready_bits.push_back(CacheBit{bit});
  const Bytes bytes = encode(report);
  CHECK(bytes.size() == encode(Report{}).size() + 12);
  const auto decoded = decode_report(bytes).value();
  CHECK(decoded.ready_bits.size() == 1000);
  CHECK(decoded.ready_bits.front() == CacheBit{1});
  report.ready_bits.push_back(CacheBit{5});  // twice is once
  CHECK(encode(report) == bytes);
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

TEST_CASE("Codec: the size bounds hold", "[unit][wire]") {
  const std::size_t empty_report = encode(Report{}).size();
  for (std::size_t extra = 0; extra < 200; extra += 7) {
    Request request = full_request();
    request.name.append(extra, 'x');
    request.shape.assign(extra, 1);
    Report report;
    report.requests = {request};
    CHECK(encode(report).size() - empty_report <= encoded_size_bound(request));
    MergedRequest merged = merged_request();
    merged.ranks.resize(1);
    for (std::size_t i = 0; i < extra; ++i) merged.ranks.push_back({10 + static_cast<int>(i), 1, static_cast<int>(i)});
    MergedChange change(SetChange{1, SetChange::Kind::kAdd, 0, {{0, 3}}, {}});
    change.change.rank_lists[0].resize(2 + extra);
    for (std::size_t i = 0; i < 2 + extra; ++i) change.change.rank_lists[0][i] = static_cast<int>(i);
    report.requests = {merged};
    report.set_changes = {change};
    CHECK(encode(report).size() - empty_report <= encoded_size_bound(merged) + encoded_size_bound(change));
    Response response = full_response();
    response.bit = CacheBit::kNone;
    response.joined.resize(extra);
    for (std::size_t i = 0; i < extra; ++i) response.joined[i] = static_cast<int>(i);
    response.first_dims.assign(extra, 3);
    response.error_message.assign(extra, 'e');
    Decision decision;
    decision.sequence = 1;
    decision.items = {response};
    CHECK(encode(decision).size() <= encoded_size_bound(response));
    SetDecision added{SetChange::Kind::kAdd, {{1, 1, false, change.change.rank_lists[0]}}, {}, ""};
    decision.items = {added};
    CHECK(encode(decision).size() <= encoded_size_bound(added));
  }
}

TEST_CASE("Codec: random messages survive the round trip", "[unit][wire]") {
  std::mt19937_64 random(7);
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  for (int i = 0; i < 300; ++i) {
    Decision d;
    d.sequence = 1 + random() % 5;
    for (int k = below(12); k > 0; --k) {
      switch (below(5)) {
        case 0: d.items.emplace_back(CacheHit{CacheBit{1 + random() % 4}}); break;
        case 1: d.items.emplace_back(Evict{CacheBit{1 + random() % 4}}); break;
        case 2: d.items.emplace_back(full_response()); break;
        case 3: d.items.emplace_back(WaitAnswer{random()}); break;
        default:
          d.items.emplace_back(SetDecision{SetChange::Kind::kAdd, {{below(9), random(), false, {below(9)}}}, {}, ""});
      }
    }
    INFO("message " << i);
    REQUIRE(decode_decision(encode(d)).value() == d);
  }
}

TEST_CASE("group_key tells groups apart by their names and boundaries", "[unit][wire]") {
  const auto key = [](std::vector<std::string> names) { return group_key(names); };
  CHECK(key({"a", "b"}) == key({"a", "b"}));
  CHECK(key({"ab"}) != key({"a", "b"}));
  CHECK(key({"a", "b"}) != key({"b", "a"}));
  CHECK(key({}) != 0);
}

}  // namespace
}  // namespace hvd::wire
