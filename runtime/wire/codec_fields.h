#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/fields.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/messages.h"

// The building blocks of the grammar in docs/design/wire.md; private to the codec. One function serves both directions,
// but where a list is written in another form than it is kept.
namespace hvd::wire {

enum class MessageKind : std::uint8_t { kReport = 1, kDecision = 2 };

inline constexpr std::uint16_t kMagic = 0x5648;  // "HV"
inline constexpr int kMaxDevice = 1 << 16;

void header(auto& io, MessageKind expected) {
  std::uint16_t magic = kMagic;
  std::uint8_t version = kProtocolVersion;
  MessageKind kind = expected;
  io.number(magic);
  if (magic != kMagic) io.fail("magic " + std::to_string(magic) + ": not a message of negotiation");
  io.number(version);
  if (version != kProtocolVersion) {
    io.fail("protocol version " + std::to_string(version) + ", this rank speaks " + std::to_string(kProtocolVersion));
  }
  io.number(kind);
  if (kind != expected) {
    io.fail("message kind " + std::to_string(static_cast<int>(kind)) + ", expected " +
            std::to_string(static_cast<int>(expected)));
  }
}

// lowest <= rank < kMaxRanks; lowest is 0, or -1 where "none" is allowed.
void rank(auto& io, Is<int> auto& value, int lowest, const char* what) {
  io.number_in(what, value, lowest, static_cast<int>(kMaxRanks) - 1);
}

void process_set(auto& io, Is<std::int32_t> auto& id) {
  io.number_in("process set", id, 0, std::numeric_limits<std::int32_t>::max());
}

// Strictly ascending.
void ranks(auto& io, Is<std::vector<int>> auto& values, const char* what) {
  int previous = -1;
  io.list(values, kMaxRanks, sizeof(std::int32_t), [&](auto& value) {
    rank(io, value, 0, what);
    if (value <= previous) io.fail(std::string(what) + " " + std::to_string(value) + ": not ascending");
    previous = value;
  });
}

// In their one form; never empty. `with_dims`: each carries its first dimension.
void rank_runs(auto& io, Is<RankRuns> auto& runs, bool with_dims, const char* what) {
  RankRun previous{.first = -1, .count = 0};
  io.list(runs, kMaxRanks, 8, [&](auto& run) {
    rank(io, run.first, 0, what);
    io.number(run.count);
    if (run.count < 1 || run.count > static_cast<int>(kMaxRanks) - run.first) {
      io.fail(std::string(what) + ": " + std::to_string(run.count) + " ranks from " + std::to_string(run.first));
    }
    if (with_dims) io.number(run.first_dim);
    if (run.first_dim < 0) io.fail("first dimension " + std::to_string(run.first_dim) + ": negative");
    const int end = previous.first + previous.count;
    if (run.first < end || (run.first == end && run.first_dim == previous.first_dim)) {
      io.fail(std::string(what) + " " + std::to_string(run.first) + ": not ascending, or part of the run before");
    }
    previous = run;
  });
  if (runs.empty()) io.fail(std::string(what) + ": none");
}

// A set of bits as ascending runs of consecutive ones. They are read ascending.
void bits(FieldWriter& io, std::vector<CacheBit> values, const char*);
void bits(FieldReader& io, std::vector<CacheBit>& values, const char* what);
// One run: start, length. Fails when it would exceed `max_length`.
struct Run {
  std::uint64_t start = 0;
  std::uint32_t length = 0;
};
void put_run(ByteWriter& out, Run run);
Run get_run(ByteReader& in, std::size_t max_length);
inline constexpr std::size_t kRunBytes = 12;
// The size of each tensor's elements, which follow a run of their bits.
std::uint16_t get_elements_size(ByteReader& in);

// All tensors have fewer than 2^63 bytes, whatever the order of their dimensions.
void shape(FieldWriter& io, const Shape& shape);
void shape(FieldReader& io, Shape& shape);

// The fields that requests and responses share, in wire order.
void common(auto& io, auto& m) {
  process_set(io, m.process_set);
  io.choice("operation", m.op, OpType{kOpTypeCount - 1});
  io.choice("element type", m.dtype, DataType{kDataTypeCount - 1});
  io.choice("reduction", m.reduce_op, ReduceOp{kReduceOpCount - 1});
  rank(io, m.root_rank, -1, "root rank");
  io.number(m.prescale);
  io.number(m.postscale);
  shape(io, m.shape);
  io.text(m.name, kMaxNameBytes);
  if (m.name.empty()) io.fail("empty tensor name");
  io.number(m.group_key);
  io.number(m.group_size);
  if ((m.group_key == 0) != (m.group_size == 0) || m.group_size > kMaxGroupSize) {
    io.fail("group of " + std::to_string(m.group_size) + " with key " + std::to_string(m.group_key));
  }
}

// decode_fields, of no more bytes than a message may have.
template <typename Message>
Result<Message> decode_bounded(ByteSpan bytes, const char* what) {
  if (bytes.size() <= kMaxMessageBytes) return decode_fields<Message>(bytes, what);
  return Status::invalid_argument(std::string(what) + ": message of " + std::to_string(bytes.size()) +
                                  " bytes, over the limit of " + std::to_string(kMaxMessageBytes));
}

}  // namespace hvd::wire
