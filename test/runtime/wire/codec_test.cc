#include "runtime/wire/codec.h"

#include <catch2/catch.hpp>
#include <random>

#include "test/runtime/wire/full_messages.h"
#include "test/support/layout.h"

// What comes back from its bytes, and how many they are.
namespace hvd::wire {
namespace {

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

TEST_CASE("Codec: the layout is that of this protocol version", "[unit][wire]") {
  CHECK(kProtocolVersion == 3);
  CHECK(test::layout_of(encode(full_report())) == 0x74d414f19c13d453);
  CHECK(test::layout_of(encode(full_decision())) == 0xa3e2d07fa7c071e9);
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

TEST_CASE("Codec: elements of consecutive bits take their own room and that of one run", "[unit][wire]") {
  Report report;
  Decision decision;
  decision.sequence = 1;
  const std::size_t empty = encode(decision).size();
  for (std::uint64_t bit = 1000; bit > 0; --bit) report.ready_tensors.push_back({CacheBit{bit}, "four"});
  for (std::uint64_t bit = 1; bit <= 1000; ++bit) decision.items.emplace_back(CacheHit{CacheBit{bit}, "four"});
  CHECK(encode(report).size() == encode(Report{}).size() + 14 + 4000);
  CHECK(encode(decision).size() == empty + 15 + 4000);
  const auto decoded = decode_report(encode(report)).value().ready_tensors;
  REQUIRE(decoded.size() == 1000);
  CHECK(decoded.front() == ReadyTensor{CacheBit{1}, "four"});
  CHECK(decode_decision(encode(decision)).value() == decision);
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
      switch (below(6)) {
        case 4:
          d.items.emplace_back(
              CacheHit{CacheBit{1 + random() % 4}, std::string(1 + random() % 2, static_cast<char>('a' + below(9)))});
          break;
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
  const auto key = [](const std::vector<std::string>& names) {
    GroupKey of;
    for (const std::string& name : names) of.add(name);
    return of.value();
  };
  CHECK(key({"a", "b"}) == key({"a", "b"}));
  CHECK(key({"ab"}) != key({"a", "b"}));
  CHECK(key({"a", "b"}) != key({"b", "a"}));
  CHECK(key({}) != 0);
}

}  // namespace
}  // namespace hvd::wire
