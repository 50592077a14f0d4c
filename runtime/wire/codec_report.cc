#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/codec_fields.h"

namespace hvd::wire {
namespace {

using namespace fields;

constexpr std::size_t kMinRequestBytes = 69;  // a name of one byte, no dimensions, one run of ranks
constexpr std::size_t kMinChangeBytes = 17;
constexpr std::size_t kMinWaitBytes = 42;

void put_change(ByteWriter& out, const MergedChange& merged) {
  const SetChange& change = merged.change;
  out.put(static_cast<std::uint8_t>(change.kind));
  out.put(change.set_id);
  if (change.kind == SetChange::Kind::kStatic) {
    out.put(static_cast<std::uint32_t>(change.digests.size()));
    for (const std::uint64_t digest : change.digests) out.put(digest);
  }
  if (change.kind == SetChange::Kind::kAdd) {
    HVD_CHECK(change.rank_lists.size() == 1, "one process set is added at a time");
    put_ranks(out, change.rank_lists.front());
  }
  put_rank_runs(out, merged.ranks, false);
}

MergedChange get_change(ByteReader& in) {
  MergedChange merged;
  SetChange& change = merged.change;
  change.kind = get_enum<SetChange::Kind>(in, static_cast<int>(SetChange::Kind::kRemove), "kind of process set change");
  change.set_id = get_process_set(in);
  if (change.kind == SetChange::Kind::kStatic) {
    change.digests.resize(in.get_count(kMaxSetChanges, sizeof(std::uint64_t)));
    for (std::uint64_t& digest : change.digests) digest = in.get<std::uint64_t>();
  }
  if (change.kind == SetChange::Kind::kAdd) {
    change.rank_lists.push_back(get_ranks(in, "rank of a process set"));
    if (change.rank_lists.back().empty()) in.fail("an empty process set");
  }
  merged.ranks = get_rank_runs(in, false, "rank of a process set change");
  if (!in.failed()) change.rank = merged.ranks.front().first;
  return merged;
}

void put_wait(ByteWriter& out, const Wait& wait) {
  out.put(static_cast<std::uint8_t>(wait.kind));
  out.put(wait.process_set);
  out.put(wait.context_id);
  out.put(static_cast<std::uint8_t>(wait.op));
  out.put_string(wait.name);
  out.put(wait.fused);
  out.put(wait.turn);
  out.put(wait.millis);
  put_ranks(out, wait.ranks);
  put_ranks(out, wait.peers);
  out.put_string(wait.history);
}

Wait get_wait(ByteReader& in) {
  Wait wait;
  wait.kind = get_enum<Wait::Kind>(in, static_cast<int>(Wait::Kind::kUndecided), "kind of wait");
  wait.process_set = get_process_set(in);
  wait.context_id = in.get<std::uint64_t>();
  wait.op = get_enum<OpType>(in, kOpTypeCount - 1, "operation");
  wait.name = in.get_string(kMaxNameBytes);
  wait.fused = in.get<std::uint32_t>();
  wait.turn = in.get<std::uint64_t>();
  wait.millis = in.get<std::uint32_t>();
  wait.ranks = get_ranks(in, "rank that waits");
  if (wait.ranks.empty()) in.fail("nobody waits");
  wait.peers = get_ranks(in, "rank that is waited for");
  wait.history = in.get_string(kMaxHistoryBytes);
  return wait;
}

bool continues(const ReadyTensor& before, const ReadyTensor& next) {
  return value(before.bit) + 1 == value(next.bit) && before.elements.size() == next.elements.size();
}

// Runs of consecutive bits with equally many bytes, and those bytes.
void put_ready_tensors(ByteWriter& out, const std::vector<ReadyTensor>& tensors) {
  std::vector<const ReadyTensor*> sorted;
  sorted.reserve(tensors.size());
  for (const ReadyTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->bit < b->bit; });
  std::vector<std::size_t> ends;  // of the runs
  for (std::size_t i = 1; i <= sorted.size(); ++i) {
    if (i == sorted.size() || !continues(*sorted[i - 1], *sorted[i])) ends.push_back(i);
  }
  out.put(static_cast<std::uint32_t>(ends.size()));
  std::size_t at = 0;
  for (const std::size_t end : ends) {
    put_run(out, {value(sorted[at]->bit), static_cast<std::uint32_t>(end - at)});
    out.put(static_cast<std::uint16_t>(sorted[at]->elements.size()));
    for (; at < end; ++at) out.put_raw(as_bytes(sorted[at]->elements));
  }
}

std::vector<ReadyTensor> get_ready_tensors(ByteReader& in) {
  std::vector<ReadyTensor> tensors;
  for (std::uint32_t n = in.get_count(kMaxBits, kRunBytes + 3); n > 0 && !in.failed(); --n) {
    const Run run = get_run(in, kMaxBits - tensors.size());
    const std::uint16_t size = get_elements_size(in);
    if (in.failed()) break;
    if (!tensors.empty() && value(tensors.back().bit) >= run.start) in.fail("ready tensors: not ascending");
    for (std::uint32_t i = 0; i < run.length && !in.failed(); ++i) {
      ReadyTensor tensor{CacheBit{run.start + i}, std::string(as_text(in.take(size)))};
      if (i == 0 && !tensors.empty() && continues(tensors.back(), tensor))
        in.fail("a run that continues the one before");
      if (!in.failed()) tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

}  // namespace

Bytes encode(const Report& report) {
  ByteWriter out;
  put_header(out, MessageKind::kReport);
  put_bits(out, report.stale_bits);
  out.put(static_cast<std::uint32_t>(report.requests.size()));
  for (const MergedRequest& merged : report.requests) put_request(out, merged);
  put_bits(out, report.ready_bits);
  put_ready_tensors(out, report.ready_tensors);
  out.put(static_cast<std::uint32_t>(report.joins.size()));
  for (const Report::Join& join : report.joins) {
    out.put(join.process_set);
    out.put(static_cast<std::int32_t>(join.rank));
  }
  out.put(static_cast<std::uint32_t>(report.set_changes.size()));
  for (const MergedChange& merged : report.set_changes) put_change(out, merged);
  out.put(static_cast<std::uint32_t>(report.shutdown_ranks.size()));
  for (const int rank : report.shutdown_ranks) out.put(static_cast<std::int32_t>(rank));
  out.put(static_cast<std::uint32_t>(report.lost_ranks.size()));
  for (const LostRank& lost : report.lost_ranks) {
    out.put(static_cast<std::int32_t>(lost.rank));
    out.put_string(lost.message);
  }
  out.put(static_cast<std::uint32_t>(report.waits.size()));
  for (const Wait& wait : report.waits) put_wait(out, wait);
  HVD_CHECK(out.size() <= kMaxMessageBytes, "report over the size limit: it should have been split");
  return out.take();
}

Result<Report> decode_report(ByteSpan bytes) {
  ByteReader in(bytes);
  Report report;
  get_header(in, MessageKind::kReport);
  report.stale_bits = get_bits(in, "stale bits");
  for (std::uint32_t n = in.get_count(kMaxRequests, kMinRequestBytes); n > 0 && !in.failed(); --n) {
    report.requests.push_back(get_request(in));
  }
  report.ready_bits = get_bits(in, "ready bits");
  report.ready_tensors = get_ready_tensors(in);
  for (std::uint32_t n = in.get_count(kMaxRanks, 8); n > 0 && !in.failed(); --n) {
    Report::Join join;
    join.process_set = get_process_set(in);
    join.rank = get_rank(in, 0, "joining rank");
    report.joins.push_back(join);
  }
  for (std::uint32_t n = in.get_count(kMaxRanks, kMinChangeBytes); n > 0 && !in.failed(); --n) {
    report.set_changes.push_back(get_change(in));
  }
  for (std::uint32_t n = in.get_count(kMaxRanks, 4); n > 0 && !in.failed(); --n) {
    report.shutdown_ranks.push_back(get_rank(in, 0, "rank that shuts down"));
  }
  for (std::uint32_t n = in.get_count(kMaxLostRanks, 8); n > 0 && !in.failed(); --n) {
    LostRank lost;
    lost.rank = get_rank(in, LostRank::kNobody, "lost rank");
    lost.message = in.get_string(kMaxTextBytes);
    report.lost_ranks.push_back(std::move(lost));
  }
  for (std::uint32_t n = in.get_count(kMaxWaits, kMinWaitBytes); n > 0 && !in.failed(); --n) {
    report.waits.push_back(get_wait(in));
  }
  HVD_RETURN_IF_ERROR(in.finish("report"));
  return report;
}

}  // namespace hvd::wire
