#include <span>

#include "runtime/base/check.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/codec_fields.h"

namespace hvd::wire {
namespace {

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

}  // namespace

void fields(auto& io, Is<FusionLimits> auto& limits) {
  io.number(limits.threshold);
  io.number(limits.padding);
  if (limits.padding == 0) io.fail("padding 0: expected 1 or more");
  io.flag("flag for groups only", limits.groups_only);
}

void fields(auto& io, Is<Response> auto& response) {
  common(io, response);
  io.flag("GPU flag", response.on_gpu);
  io.number(response.devices_key);
  io.list(response.first_dims, kMaxRanks, sizeof(std::int64_t), [&io](auto& d) {
    io.number(d);
    if (d < 0) io.fail("first dimension " + std::to_string(d) + ": negative");
  });
  ranks(io, response.joined, "joined rank");
  io.number(response.bit);
  io.choice("status code", response.error, StatusCode::kInternal);
  io.text(response.error_message, kMaxTextBytes);
  if (response.bit != CacheBit::kNone && (response.is_error() || !response.joined.empty())) {
    io.fail("a cached response with an error or joined ranks");
  }
}

void fields(auto& io, Is<SetDecision> auto& decision) {
  io.choice("kind of process set change", decision.kind, SetChange::Kind::kRemove);
  io.list(decision.entries, kMaxSetChanges, 13, [&](auto& entry) {
    process_set(io, entry.id);
    io.number(entry.context_id);
    io.flag("existed flag", entry.existed);
    if (decision.kind != SetChange::Kind::kAdd) return;
    ranks(io, entry.ranks, "rank of a process set");
    if (entry.ranks.empty()) io.fail("an empty process set");
  });
  io.choice("status code", decision.error, StatusCode::kInternal);
  io.text(decision.error_message, kMaxTextBytes);
}

void fields(auto& io, Is<WaitAnswer> auto& answer) { io.number(answer.context_id); }

void fields(auto& io, Is<Stop> auto& stop) {
  io.choice("kind of stop", stop.kind, Stop::Kind::kAbort);
  rank(io, stop.rank, -1, "rank that stops");
  io.text(stop.message, kMaxTextBytes);
}

namespace {

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

void put_part(FieldWriter& io, const Part& part) {
  io.number(part.tag);
  switch (part.tag) {
    case PartTag::kResponse: return fields(io, std::get<Response>(*part.item));
    case PartTag::kSetDecision: return fields(io, std::get<SetDecision>(*part.item));
    case PartTag::kWaitAnswer: return fields(io, std::get<WaitAnswer>(*part.item));
    case PartTag::kResults: return put_results(io.out, part);
    case PartTag::kHits:
    case PartTag::kEvicts: return put_run(io.out, part.run);
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

template <typename Item>
void get_item(FieldReader& io, std::vector<DecisionItem>& items) {
  fields(io, std::get<Item>(items.emplace_back(Item{})));
}

void get_part(FieldReader& io, std::vector<DecisionItem>& items) {
  ByteReader& in = io.in;
  PartTag tag{};
  io.choice("part of a decision", tag, PartTag::kResults);
  const std::size_t room = kMaxItems - items.size();
  if (room == 0) in.fail("more than " + std::to_string(kMaxItems) + " items");
  if (in.failed()) return;
  if (tag == PartTag::kResponse) {
    get_item<Response>(io, items);
  } else if (tag == PartTag::kSetDecision) {
    get_item<SetDecision>(io, items);
  } else if (tag == PartTag::kWaitAnswer) {
    get_item<WaitAnswer>(io, items);
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

void parts(FieldWriter& io, const std::vector<DecisionItem>& items) {
  io.list(make_parts(items), kMaxItems, kMinPartBytes, [&io](const Part& part) { put_part(io, part); });
}
void parts(FieldReader& io, std::vector<DecisionItem>& items) {
  for (auto n = io.in.get_count(kMaxItems, kMinPartBytes); n > 0 && !io.in.failed(); --n) get_part(io, items);
}

}  // namespace

void fields(auto& io, Is<Decision> auto& decision) {
  header(io, MessageKind::kDecision);
  io.number(decision.sequence);
  fields(io, decision.limits);
  parts(io, decision.items);
  bool stops = decision.stop.has_value();
  io.flag("stop flag", stops);
  if (stops) {
    io.derive(decision.stop, Stop{});
    fields(io, *decision.stop);
  }
  if (decision.sequence == 0 && (!stops || !decision.items.empty())) io.fail("sequence 0 in a decision of the root");
}

Bytes encode(const Decision& decision) {
  HVD_CHECK(decision.items.size() <= kMaxItems, "decision with too many items: it should have been split");
  Bytes bytes = encode_fields(decision);
  HVD_CHECK(bytes.size() <= kMaxMessageBytes, "decision over the size limit: it should have been split");
  return bytes;
}

Result<Decision> decode_decision(ByteSpan bytes) { return decode_bounded<Decision>(bytes, "decision"); }

}  // namespace hvd::wire
