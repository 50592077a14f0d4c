#include "runtime/wire/codec_fields.h"

#include <limits>

#include "runtime/wire/codec.h"

namespace hvd::wire::fields {
namespace {

constexpr std::uint16_t kMagic = 0x5648;  // "HV"
constexpr int kMaxDevice = 1 << 16;

template <typename Enum>
void put_enum(ByteWriter& out, Enum e) {
  out.put(static_cast<std::uint8_t>(e));
}

// All tensors have fewer than 2^63 bytes, whatever the order of their dimensions.
void put_shape(ByteWriter& out, const Shape& shape) {
  out.put(static_cast<std::uint8_t>(shape.size()));
  for (const std::int64_t d : shape) out.put(d);
}

Shape get_shape(ByteReader& in) {
  Shape shape(in.get<std::uint8_t>());
  constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 8;
  std::int64_t elements = 1;
  for (std::int64_t& d : shape) {
    d = in.get<std::int64_t>();
    if (d < 0 || (d > 0 && elements > kMaxElements / d)) {
      in.fail("dimension " + std::to_string(d) + ": negative, or the tensor has 2^63 bytes or more");
      return {};
    }
    if (d > 0) elements *= d;
  }
  return shape;
}

std::string get_name(ByteReader& in) {
  std::string name = in.get_string(kMaxNameBytes);
  if (name.empty()) in.fail("empty tensor name");
  return name;
}

// The fields that requests and responses share, in wire order.
template <typename Message>
void put_common(ByteWriter& out, const Message& m) {
  out.put(m.process_set);
  put_enum(out, m.op);
  put_enum(out, m.dtype);
  put_enum(out, m.reduce_op);
  out.put(static_cast<std::int32_t>(m.root_rank));
  out.put(m.prescale);
  out.put(m.postscale);
  put_shape(out, m.shape);
  out.put_string(m.name);
  out.put(m.group_key);
  out.put(m.group_size);
}

template <typename Message>
void get_common(ByteReader& in, Message& m) {
  m.process_set = get_process_set(in);
  m.op = get_enum<OpType>(in, kOpTypeCount - 1, "operation");
  m.dtype = get_enum<DataType>(in, kDataTypeCount - 1, "element type");
  m.reduce_op = get_enum<ReduceOp>(in, kReduceOpCount - 1, "reduction");
  m.root_rank = get_rank(in, -1, "root rank");
  m.prescale = in.get<double>();
  m.postscale = in.get<double>();
  m.shape = get_shape(in);
  m.name = get_name(in);
  m.group_key = in.get<std::uint64_t>();
  m.group_size = in.get<std::uint32_t>();
  if ((m.group_key == 0) != (m.group_size == 0) || m.group_size > kMaxGroupSize) {
    in.fail("group of " + std::to_string(m.group_size) + " with key " + std::to_string(m.group_key));
  }
}

}  // namespace

void put_header(ByteWriter& out, MessageKind kind) {
  out.put(kMagic);
  out.put(kProtocolVersion);
  put_enum(out, kind);
}

void get_header(ByteReader& in, MessageKind expected) {
  if (in.remaining() > kMaxMessageBytes) {
    in.fail("message of " + std::to_string(in.remaining()) + " bytes, over the limit of " +
            std::to_string(kMaxMessageBytes));
  }
  if (const auto magic = in.get<std::uint16_t>(); magic != kMagic) {
    in.fail("magic " + std::to_string(magic) + ": not a message of negotiation");
  }
  if (const auto version = in.get<std::uint8_t>(); version != kProtocolVersion) {
    in.fail("protocol version " + std::to_string(version) + ", this rank speaks " + std::to_string(kProtocolVersion));
  }
  if (const auto kind = in.get<std::uint8_t>(); kind != static_cast<std::uint8_t>(expected)) {
    in.fail("message kind " + std::to_string(kind) + ", expected " + std::to_string(static_cast<int>(expected)));
  }
}

bool get_bool(ByteReader& in, const char* what) { return get_enum<std::uint8_t>(in, 1, what) == 1; }

int get_rank(ByteReader& in, int lowest, const char* what) {
  const auto rank = in.get<std::int32_t>();
  if (rank < lowest || rank >= static_cast<std::int32_t>(kMaxRanks)) {
    in.fail(std::string(what) + " " + std::to_string(rank) + ": expected " + std::to_string(lowest) + " .. " +
            std::to_string(kMaxRanks - 1));
    return lowest;
  }
  return rank;
}

std::int32_t get_process_set(ByteReader& in) {
  const auto id = in.get<std::int32_t>();
  if (id < 0) in.fail("process set " + std::to_string(id) + ": negative");
  return id;
}

void put_request(ByteWriter& out, const MergedRequest& merged) {
  out.put(static_cast<std::int32_t>(merged.request.device));
  out.put(merged.devices_key);
  put_common(out, merged.request);
  put_rank_runs(out, merged.ranks, has_first_dims(merged.request));
}

MergedRequest get_request(ByteReader& in) {
  MergedRequest merged;
  Request& request = merged.request;
  request.device = in.get<std::int32_t>();
  if (request.device < kCpuDevice || request.device > kMaxDevice) {
    in.fail("device " + std::to_string(request.device) + ": expected -1 .. " + std::to_string(kMaxDevice));
  }
  merged.devices_key = in.get<std::uint64_t>();
  get_common(in, request);
  if (request.op == OpType::kJoin) in.fail("a join among the requests");
  merged.ranks = get_rank_runs(in, has_first_dims(request), "requesting rank");
  if (in.failed()) return merged;
  request.rank = merged.ranks.front().first;
  if (has_first_dims(request) && request.shape.front() != merged.ranks.front().first_dim) {
    in.fail("first dimension " + std::to_string(request.shape.front()) + " of a request whose lowest rank has " +
            std::to_string(merged.ranks.front().first_dim));
  }
  return merged;
}

void put_response(ByteWriter& out, const Response& response) {
  put_common(out, response);
  out.put(static_cast<std::uint8_t>(response.on_gpu ? 1 : 0));
  out.put(response.devices_key);
  out.put(static_cast<std::uint32_t>(response.first_dims.size()));
  for (const std::int64_t d : response.first_dims) out.put(d);
  put_ranks(out, response.joined);
  out.put(value(response.bit));
  put_enum(out, response.error);
  out.put_string(response.error_message);
}

Response get_response(ByteReader& in) {
  Response response;
  get_common(in, response);
  response.on_gpu = get_bool(in, "GPU flag");
  response.devices_key = in.get<std::uint64_t>();
  response.first_dims.resize(in.get_count(kMaxRanks, sizeof(std::int64_t)));
  for (std::int64_t& d : response.first_dims) {
    d = in.get<std::int64_t>();
    if (d < 0) in.fail("first dimension " + std::to_string(d) + ": negative");
  }
  response.joined = get_ranks(in, "joined rank");
  response.bit = CacheBit{in.get<std::uint64_t>()};
  response.error = get_enum<StatusCode>(in, kStatusCodeMax, "status code");
  response.error_message = in.get_string(kMaxTextBytes);
  if (response.bit != CacheBit::kNone && (response.is_error() || !response.joined.empty())) {
    in.fail("a cached response with an error or joined ranks");
  }
  return response;
}

}  // namespace hvd::wire::fields

namespace hvd::wire {
namespace {
constexpr std::size_t kFixedPart = 160;  // more than all fields of constant size together (checked by the tests)
}

std::size_t encoded_size_bound(const Request& request) {
  return kFixedPart + 16 + 8 * request.shape.size() + request.name.size();
}

std::size_t encoded_size_bound(const Response& response) {
  return kFixedPart + 8 * response.shape.size() + response.name.size() + 8 * response.first_dims.size() +
         4 * response.joined.size() + response.error_message.size();
}

std::size_t encoded_size_bound(const MergedRequest& merged) {
  return encoded_size_bound(merged.request) + 16 * merged.ranks.size();
}

std::size_t encoded_size_bound(const MergedChange& merged) {
  std::size_t size = kFixedPart + 8 * merged.ranks.size() + 8 * merged.change.digests.size();
  for (const auto& ranks : merged.change.rank_lists) size += 4 + 4 * ranks.size();
  return size;
}

std::size_t encoded_size_bound(const SetDecision& decision) {
  std::size_t size = kFixedPart + decision.error_message.size();
  for (const auto& entry : decision.entries) size += 17 + 4 * entry.ranks.size();
  return size;
}

}  // namespace hvd::wire
