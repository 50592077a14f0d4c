#include "runtime/base/check.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/codec_fields.h"

namespace hvd::wire {
namespace {

using namespace fields;

constexpr std::size_t kMinRequestBytes = 60;
constexpr std::size_t kMinChangeBytes = 13;

void put_change(ByteWriter& out, const SetChange& change) {
  out.put(static_cast<std::int32_t>(change.rank));
  out.put(static_cast<std::uint8_t>(change.kind));
  out.put(change.set_id);
  out.put(static_cast<std::uint32_t>(change.rank_lists.size()));
  for (const auto& ranks : change.rank_lists) put_ranks(out, ranks);
}

SetChange get_change(ByteReader& in) {
  SetChange change;
  change.rank = get_rank(in, 0, "rank of a process set change");
  change.kind = get_enum<SetChange::Kind>(in, static_cast<int>(SetChange::Kind::kRemove), "kind of process set change");
  change.set_id = get_process_set(in);
  const std::uint32_t lists = in.get_count(kMaxSetChanges, 8);  // a list has a count and at least one rank
  for (std::uint32_t i = 0; i < lists && !in.failed(); ++i) {
    change.rank_lists.push_back(get_ranks(in, "rank of a process set"));
    if (change.rank_lists.back().empty()) in.fail("an empty process set");
  }
  if (change.kind == SetChange::Kind::kAdd && lists != 1) in.fail("adding " + std::to_string(lists) + " process sets at once");
  if (change.kind == SetChange::Kind::kRemove && lists != 0) in.fail("a removal with rank lists");
  return change;
}

}  // namespace

Bytes encode(const Report& report) {
  ByteWriter out;
  put_header(out, MessageKind::kReport);
  put_bits(out, report.stale_bits);
  out.put(static_cast<std::uint32_t>(report.requests.size()));
  for (const Request& request : report.requests) put_request(out, request);
  put_bits(out, report.ready_bits);
  out.put(static_cast<std::uint32_t>(report.joins.size()));
  for (const Report::Join& join : report.joins) {
    out.put(join.process_set);
    out.put(static_cast<std::int32_t>(join.rank));
  }
  out.put(static_cast<std::uint32_t>(report.set_changes.size()));
  for (const SetChange& change : report.set_changes) put_change(out, change);
  out.put(static_cast<std::uint32_t>(report.shutdown_ranks.size()));
  for (const int rank : report.shutdown_ranks) out.put(static_cast<std::int32_t>(rank));
  out.put(static_cast<std::uint32_t>(report.lost_ranks.size()));
  for (const LostRank& lost : report.lost_ranks) {
    out.put(static_cast<std::int32_t>(lost.rank));
    out.put_string(lost.message);
  }
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
    lost.rank = get_rank(in, 0, "lost rank");
    lost.message = in.get_string(kMaxTextBytes);
    report.lost_ranks.push_back(std::move(lost));
  }
  HVD_RETURN_IF_ERROR(in.finish("report"));
  return report;
}

}  // namespace hvd::wire
