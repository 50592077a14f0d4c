#include <span>

#include "runtime/base/check.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/codec_fields.h"

namespace hvd::wire {
namespace {

using namespace fields;

// Tags of the parts of a decision; consecutive hits (or evictions) of consecutive bits are one part.
enum class PartTag : std::uint8_t {
  kResponse = 0,
  kHits = 1,
  kEvicts = 2,
  kSetDecision = 3,
  kWaitAnswer = 4,
  kResults = 5
};
constexpr std::size_t kMinPartBytes = 9;

void put_limits(ByteWriter& out, const FusionLimits& limits) {
  out.put(limits.threshold);
  out.put(limits.padding);
  out.put(static_cast<std::uint8_t>(limits.groups_only ? 1 : 0));
}

FusionLimits get_limits(ByteReader& in) {
  FusionLimits limits;
  limits.threshold = in.get<std::uint64_t>();
  limits.padding = in.get<std::uint32_t>();
  limits.groups_only = get_bool(in, "flag for groups only");
  if (limits.padding == 0) in.fail("padding 0: expected 1 or more");
  return limits;
}

void put_set_decision(ByteWriter& out, const SetDecision& decision) {
  out.put(static_cast<std::uint8_t>(decision.kind));
  out.put(static_cast<std::uint32_t>(decision.entries.size()));
  for (const SetDecision::Entry& entry : decision.entries) {
    out.put(entry.id);
    out.put(entry.context_id);
    out.put(static_cast<std::uint8_t>(entry.existed ? 1 : 0));
    if (decision.kind == SetChange::Kind::kAdd) put_ranks(out, entry.ranks);
  }
  out.put(static_cast<std::uint8_t>(decision.error));
  out.put_string(decision.error_message);
}

SetDecision get_set_decision(ByteReader& in) {
  SetDecision decision;
  decision.kind =
      get_enum<SetChange::Kind>(in, static_cast<int>(SetChange::Kind::kRemove), "kind of process set change");
  for (std::uint32_t n = in.get_count(kMaxSetChanges, 13); n > 0 && !in.failed(); --n) {
    SetDecision::Entry entry;
    entry.id = get_process_set(in);
    entry.context_id = in.get<std::uint64_t>();
    entry.existed = get_bool(in, "existed flag");
    if (decision.kind == SetChange::Kind::kAdd) {
      entry.ranks = get_ranks(in, "rank of a process set");
      if (entry.ranks.empty()) in.fail("an empty process set");
    }
    decision.entries.push_back(std::move(entry));
  }
  decision.error = get_enum<StatusCode>(in, kStatusCodeMax, "status code");
  decision.error_message = in.get_string(kMaxTextBytes);
  return decision;
}

// The parts in which a decision's items are written.
struct Part {
  const DecisionItem* item = nullptr;  // null: a run of bits; results: the first of the run
  PartTag tag = PartTag::kResponse;
  Run run;
};

template <typename BitItem>
void add_bit(std::vector<Part>& parts, PartTag tag, const BitItem& item) {
  if (!parts.empty() && parts.back().tag == tag &&
      parts.back().run.start + parts.back().run.length == value(item.bit)) {
    ++parts.back().run.length;
  } else {
    parts.push_back({nullptr, tag, {value(item.bit), 1}});
  }
}

void add_result(std::vector<Part>& parts, const DecisionItem& item, const CacheHit& hit) {
  if (!parts.empty() && parts.back().tag == PartTag::kResults) {
    Part& last = parts.back();
    if (last.run.start + last.run.length == value(hit.bit) &&
        std::get<CacheHit>(*last.item).elements.size() == hit.elements.size()) {
      ++last.run.length;
      return;
    }
  }
  parts.push_back({&item, PartTag::kResults, {value(hit.bit), 1}});
}

std::vector<Part> make_parts(const std::vector<DecisionItem>& items) {
  std::vector<Part> parts;
  for (const DecisionItem& item : items) {
    if (const auto* hit = std::get_if<CacheHit>(&item)) {
      if (hit->elements.empty()) {
        add_bit(parts, PartTag::kHits, *hit);
      } else {
        add_result(parts, item, *hit);
      }
    } else if (const auto* evict = std::get_if<Evict>(&item)) {
      add_bit(parts, PartTag::kEvicts, *evict);
    } else {
      const bool is_response = std::holds_alternative<Response>(item);
      const bool is_answer = std::holds_alternative<WaitAnswer>(item);
      parts.push_back({&item,
                       is_response ? PartTag::kResponse
                       : is_answer ? PartTag::kWaitAnswer
                                   : PartTag::kSetDecision,
                       {}});
    }
  }
  return parts;
}

// The items of a run of results lie one behind the other.
void put_results(ByteWriter& out, const Part& part) {
  put_run(out, part.run);
  const std::span items(part.item, part.run.length);
  out.put(static_cast<std::uint16_t>(std::get<CacheHit>(items.front()).elements.size()));
  for (const DecisionItem& item : items) out.put_raw(as_bytes(std::get<CacheHit>(item).elements));
}

void put_part(ByteWriter& out, const Part& part) {
  out.put(static_cast<std::uint8_t>(part.tag));
  switch (part.tag) {
    case PartTag::kResponse: return put_response(out, std::get<Response>(*part.item));
    case PartTag::kSetDecision: return put_set_decision(out, std::get<SetDecision>(*part.item));
    case PartTag::kWaitAnswer: return out.put(std::get<WaitAnswer>(*part.item).context_id);
    case PartTag::kResults: return put_results(out, part);
    case PartTag::kHits:
    case PartTag::kEvicts: return put_run(out, part.run);
  }
}

DecisionItem bit_item(PartTag tag, std::uint64_t number) {
  if (tag == PartTag::kHits) return CacheHit{CacheBit{number}};
  return Evict{CacheBit{number}};
}

void get_results(ByteReader& in, std::size_t room, std::vector<DecisionItem>& items) {
  const Run run = get_run(in, room);
  const std::uint16_t size = get_elements_size(in);
  const auto* before = items.empty() ? nullptr : std::get_if<CacheHit>(&items.back());
  if (before != nullptr && before->elements.size() == size && value(before->bit) + 1 == run.start)
    in.fail("a run that continues the one before");
  for (std::uint32_t i = 0; i < run.length && !in.failed(); ++i) {
    std::string elements(as_text(in.take(size)));
    if (!in.failed()) items.emplace_back(CacheHit{CacheBit{run.start + i}, std::move(elements)});
  }
}

void get_part(ByteReader& in, std::vector<DecisionItem>& items) {
  const auto tag = get_enum<PartTag>(in, static_cast<int>(PartTag::kResults), "part of a decision");
  const std::size_t room = kMaxItems - items.size();
  if (room == 0) in.fail("more than " + std::to_string(kMaxItems) + " items");
  if (in.failed()) return;
  if (tag == PartTag::kResponse) {
    items.emplace_back(get_response(in));
  } else if (tag == PartTag::kSetDecision) {
    items.emplace_back(get_set_decision(in));
  } else if (tag == PartTag::kWaitAnswer) {
    items.emplace_back(WaitAnswer{in.get<std::uint64_t>()});
  } else if (tag == PartTag::kResults) {
    get_results(in, room, items);
  } else {
    const Run run = get_run(in, room);
    // One form for one meaning: a run that continues the one before belongs to it.
    if (!items.empty() && items.back() == bit_item(tag, run.start - 1)) in.fail("a run that continues the one before");
    if (in.failed()) return;
    for (std::uint32_t i = 0; i < run.length; ++i) items.push_back(bit_item(tag, run.start + i));
  }
}

}  // namespace

Bytes encode(const Decision& decision) {
  HVD_CHECK(decision.items.size() <= kMaxItems, "decision with too many items: it should have been split");
  ByteWriter out;
  put_header(out, MessageKind::kDecision);
  out.put(decision.sequence);
  put_limits(out, decision.limits);
  const std::vector<Part> parts = make_parts(decision.items);
  out.put(static_cast<std::uint32_t>(parts.size()));
  for (const Part& part : parts) put_part(out, part);
  out.put(static_cast<std::uint8_t>(decision.stop ? 1 : 0));
  if (decision.stop) {
    out.put(static_cast<std::uint8_t>(decision.stop->kind));
    out.put(static_cast<std::int32_t>(decision.stop->rank));
    out.put_string(decision.stop->message);
  }
  HVD_CHECK(out.size() <= kMaxMessageBytes, "decision over the size limit: it should have been split");
  return out.take();
}

Result<Decision> decode_decision(ByteSpan bytes) {
  ByteReader in(bytes);
  Decision decision;
  get_header(in, MessageKind::kDecision);
  decision.sequence = in.get<std::uint64_t>();
  decision.limits = get_limits(in);
  for (std::uint32_t n = in.get_count(kMaxItems, kMinPartBytes); n > 0 && !in.failed(); --n)
    get_part(in, decision.items);
  if (get_bool(in, "stop flag")) {
    Stop stop;
    stop.kind = get_enum<Stop::Kind>(in, static_cast<int>(Stop::Kind::kAbort), "kind of stop");
    stop.rank = get_rank(in, -1, "rank that stops");
    stop.message = in.get_string(kMaxTextBytes);
    decision.stop = std::move(stop);
  }
  if (decision.sequence == 0 && (!decision.stop || !decision.items.empty()))
    in.fail("sequence 0 in a decision of the root");
  HVD_RETURN_IF_ERROR(in.finish("decision"));
  return decision;
}

}  // namespace hvd::wire
