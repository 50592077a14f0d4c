#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/codec_fields.h"

namespace hvd::wire {
namespace {

constexpr std::size_t kMinRequestBytes = 69;  // a name of one byte, no dimensions, one run of ranks
constexpr std::size_t kMinChangeBytes = 17;
constexpr std::size_t kMinWaitBytes = 42;

}  // namespace

void fields(auto& io, Is<MergedRequest> auto& merged) {
  auto& request = merged.request;
  io.number_in("device", request.device, kCpuDevice, kMaxDevice);
  io.number(merged.devices_key);
  common(io, request);
  if (request.op == OpType::kJoin) io.fail("a join among the requests");
  rank_runs(io, merged.ranks, has_first_dims(request), "requesting rank");
  if (merged.ranks.empty()) return;
  io.derive(request.rank, merged.ranks.front().first);
  if (has_first_dims(request) && request.shape.front() != merged.ranks.front().first_dim) {
    io.fail("first dimension " + std::to_string(request.shape.front()) + " of a request whose lowest rank has " +
            std::to_string(merged.ranks.front().first_dim));
  }
}

void fields(auto& io, Is<MergedChange> auto& merged) {
  auto& change = merged.change;
  io.choice("kind of process set change", change.kind, SetChange::Kind::kRemove);
  process_set(io, change.set_id);
  if (change.kind == SetChange::Kind::kStatic) {
    io.list(change.digests, kMaxSetChanges, sizeof(std::uint64_t), [&io](auto& digest) { io.number(digest); });
  }
  if (change.kind == SetChange::Kind::kAdd) {
    io.derive(change.rank_lists, std::vector<std::vector<int>>(1));
    HVD_CHECK(change.rank_lists.size() == 1, "one process set is added at a time");
    ranks(io, change.rank_lists.front(), "rank of a process set");
    if (change.rank_lists.front().empty()) io.fail("an empty process set");
  }
  rank_runs(io, merged.ranks, false, "rank of a process set change");
  if (!merged.ranks.empty()) io.derive(change.rank, merged.ranks.front().first);
}

void fields(auto& io, Is<Wait> auto& wait) {
  io.choice("kind of wait", wait.kind, Wait::Kind::kUndecided);
  process_set(io, wait.process_set);
  io.number(wait.context_id);
  io.choice("operation", wait.op, OpType{kOpTypeCount - 1});
  io.text(wait.name, kMaxNameBytes);
  io.number(wait.fused);
  io.number(wait.turn);
  io.number(wait.millis);
  ranks(io, wait.ranks, "rank that waits");
  if (wait.ranks.empty()) io.fail("nobody waits");
  ranks(io, wait.peers, "rank that is waited for");
  io.text(wait.history, kMaxHistoryBytes);
}

namespace {

bool continues(const ReadyTensor& before, const ReadyTensor& next) {
  return value(before.bit) + 1 == value(next.bit) && before.elements.size() == next.elements.size();
}

// Runs of consecutive bits with equally many bytes, and those bytes.
void ready_tensors(FieldWriter& io, const std::vector<ReadyTensor>& tensors) {
  std::vector<const ReadyTensor*> sorted;
  sorted.reserve(tensors.size());
  for (const ReadyTensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->bit < b->bit; });
  std::vector<std::size_t> ends;  // of the runs
  for (std::size_t i = 1; i <= sorted.size(); ++i) {
    if (i == sorted.size() || !continues(*sorted[i - 1], *sorted[i])) ends.push_back(i);
  }
  io.out.put(static_cast<std::uint32_t>(ends.size()));
  std::size_t at = 0;
  for (const std::size_t end : ends) {
    put_run(io.out, {value(sorted[at]->bit), static_cast<std::uint32_t>(end - at)});
    io.out.put(static_cast<std::uint16_t>(sorted[at]->elements.size()));
    for (; at < end; ++at) io.out.put_raw(as_bytes(sorted[at]->elements));
  }
}

void ready_tensors(FieldReader& io, std::vector<ReadyTensor>& tensors) {
  ByteReader& in = io.in;
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
}

}  // namespace

void fields(auto& io, Is<Report> auto& report) {
  const auto all_fields = [&io](auto& message) { fields(io, message); };
  header(io, MessageKind::kReport);
  bits(io, report.stale_bits, "stale bits");
  io.list(report.requests, kMaxRequests, kMinRequestBytes, all_fields);
  bits(io, report.ready_bits, "ready bits");
  ready_tensors(io, report.ready_tensors);
  io.list(report.joins, kMaxRanks, 8, [&io](auto& join) {
    process_set(io, join.process_set);
    rank(io, join.rank, 0, "joining rank");
  });
  io.list(report.set_changes, kMaxRanks, kMinChangeBytes, all_fields);
  io.list(report.shutdown_ranks, kMaxRanks, 4, [&io](auto& value) { rank(io, value, 0, "rank that shuts down"); });
  io.list(report.lost_ranks, kMaxLostRanks, 8, [&io](auto& lost) {
    rank(io, lost.rank, LostRank::kNobody, "lost rank");
    io.text(lost.message, kMaxTextBytes);
  });
  io.list(report.waits, kMaxWaits, kMinWaitBytes, all_fields);
}

Bytes encode(const Report& report) {
  Bytes bytes = encode_fields(report);
  HVD_CHECK(bytes.size() <= kMaxMessageBytes, "report over the size limit: it should have been split");
  return bytes;
}

Result<Report> decode_report(ByteSpan bytes) { return decode_bounded<Report>(bytes, "report"); }

}  // namespace hvd::wire
