#include "runtime/fusion/fusion_planner.h"

#include <algorithm>
#include <vector>

#include "horovod/types.h"

namespace hvd::fusion {
namespace {

using wire::FusionLimits;
using wire::Response;

// One round of messages costs about as much as copying half a MiB into the buffer and out of it again, and a collective
// has rounds in proportion to its members.
constexpr std::uint64_t kAloneBytesPerMember = std::uint64_t{512} * 1024;
// On a GPU it costs as much as copying tens of MiB, as memory there is a hundred times as fast, and a collective of its
// own has to be launched on top.
constexpr std::uint64_t kAloneBytesOnGpu = std::uint64_t{16} << 20;

std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }

// Bytes of one response in the buffer, padded.
std::uint64_t fused_bytes(const Response& response, std::uint32_t padding) {
  const std::uint64_t element = element_size(response.dtype);
  if (response.op != OpType::kAllgather) {
    return round_up(static_cast<std::uint64_t>(num_elements(response.shape)) * element, padding);
  }
  std::uint64_t row = element;
  for (std::size_t i = 1; i < response.shape.size(); ++i) row *= static_cast<std::uint64_t>(response.shape[i]);
  std::uint64_t total = 0;
  for (const std::int64_t rows : response.first_dims)
    total += round_up(static_cast<std::uint64_t>(rows) * row, padding);
  return total;
}

// Whether one collective can serve both: what differs per batch must be equal. Requires: both can_fuse.
bool fit_together(const Response& a, const Response& b, const FusionLimits& limits) {
  if (a.process_set != b.process_set || a.op != b.op || a.dtype != b.dtype || a.on_gpu != b.on_gpu ||
      a.devices_key != b.devices_key) {
    return false;
  }
  if (limits.groups_only && (a.group_key == 0 || a.group_key != b.group_key)) return false;
  if (!is_reduction(a.op)) return true;
  return a.reduce_op == b.reduce_op && same_factors(a, b);
}

// A response waiting for its batch, and the one after it.
struct Candidate {
  std::uint64_t bytes = 0;  // what it counts when it is part of a batch or skipped
  bool fuses = false;
  std::size_t next = 0;
};

Candidate make_candidate(const Response& r, const FusionLimits& limits, std::uint64_t alone_bytes, std::size_t next) {
  const bool is_fused_kind = is_reduction(r.op) || r.op == OpType::kAllgather;
  if (r.is_error() || !(is_fused_kind || r.op == OpType::kBroadcast)) return {0, false, next};
  const std::uint64_t bytes = fused_bytes(r, limits.padding);
  if (r.devices_key != 0) alone_bytes = std::max(alone_bytes, kAloneBytesOnGpu);
  return {bytes, is_fused_kind && limits.threshold > 0 && bytes < alone_bytes, next};
}

void add(Batch& batch, std::size_t index, std::uint64_t bytes, bool with_offsets) {
  batch.items.push_back(index);
  if (with_offsets) batch.offsets.push_back(batch.bytes);
  batch.bytes += bytes;
}

}  // namespace

std::uint64_t alone_bytes(int members) { return static_cast<std::uint64_t>(members) * kAloneBytesPerMember; }

std::vector<Batch> plan(std::span<const Response* const> responses, const FusionLimits& limits,
                        std::uint64_t alone_bytes) {
  const std::size_t end = responses.size();
  std::vector<Candidate> waiting;
  waiting.reserve(end);
  for (std::size_t i = 0; i < end; ++i) waiting.push_back(make_candidate(*responses[i], limits, alone_bytes, i + 1));
  std::vector<Batch> batches;
  for (std::size_t oldest = 0; oldest != end;) {
    const std::size_t first = oldest;
    oldest = waiting[first].next;
    const Response& head = *responses[first];
    Batch& batch = batches.emplace_back();
    add(batch, first, waiting[first].bytes, is_reduction(head.op));
    if (!waiting[first].fuses) continue;
    std::uint64_t skipped = 0;
    for (std::size_t* link = &oldest; *link != end;) {
      Candidate& next = waiting[*link];
      if (next.fuses && batch.bytes + next.bytes <= limits.threshold && fit_together(head, *responses[*link], limits)) {
        add(batch, *link, next.bytes, is_reduction(head.op));
        *link = next.next;
      } else {
        skipped += next.bytes;
        if (batch.bytes + skipped > limits.threshold) break;
        link = &next.next;
      }
    }
  }
  return batches;
}

std::uint64_t round_threshold(std::uint64_t threshold, int local_size, bool homogeneous) {
  if (!homogeneous || threshold == 0) return threshold;
  return round_up(threshold, static_cast<std::uint64_t>(local_size) * 8 * 64);
}

}  // namespace hvd::fusion
