#include "runtime/wire/codec_fields.h"

#include <algorithm>
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
    in.fail("message of " + std::to_string(in.remaining()) + " bytes, over the limit of " + std::to_string(kMaxMessageBytes));
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

void put_ranks(ByteWriter& out, const std::vector<int>& ranks) {
  out.put(static_cast<std::uint32_t>(ranks.size()));
  for (const int rank : ranks) out.put(static_cast<std::int32_t>(rank));
}

std::vector<int> get_ranks(ByteReader& in, const char* what) {
  std::vector<int> ranks(in.get_count(kMaxRanks, sizeof(std::int32_t)));
  int previous = -1;
  for (int& rank : ranks) {
    rank = get_rank(in, 0, what);
    if (rank <= previous) in.fail(std::string(what) + " " + std::to_string(rank) + ": not ascending");
    if (in.failed()) return {};
    previous = rank;
  }
  return ranks;
}

void put_run(ByteWriter& out, Run run) {
  out.put(run.start);
  out.put(run.length);
}

Run get_run(ByteReader& in, std::size_t max_length) {
  Run run{in.get<std::uint64_t>(), in.get<std::uint32_t>()};
  if (in.failed()) return {};
  if (run.start == 0 || run.length == 0 || run.length > max_length ||
      run.start > std::numeric_limits<std::uint64_t>::max() - run.length) {
    in.fail("run of " + std::to_string(run.length) + " bits from " + std::to_string(run.start) + ": expected 1 .. " +
            std::to_string(max_length) + " bits from 1 on");
    return {};
  }
  return run;
}

void put_bits(ByteWriter& out, std::vector<CacheBit> bits) {
  std::sort(bits.begin(), bits.end());
  bits.erase(std::unique(bits.begin(), bits.end()), bits.end());
  std::vector<Run> runs;
  for (const CacheBit bit : bits) {
    if (!runs.empty() && value(bit) == runs.back().start + runs.back().length) {
      ++runs.back().length;
    } else {
      runs.push_back({value(bit), 1});
    }
  }
  out.put(static_cast<std::uint32_t>(runs.size()));
  for (const Run& run : runs) put_run(out, run);
}

std::vector<CacheBit> get_bits(ByteReader& in, const char* what) {
  std::vector<CacheBit> bits;
  const std::uint32_t count = in.get_count(kMaxBits, kRunBytes);
  std::uint64_t end = 0;  // one past the run before
  for (std::uint32_t i = 0; i < count; ++i) {
    const Run run = get_run(in, kMaxBits - bits.size());
    if (!in.failed() && run.start <= end) {
      in.fail(std::string(what) + ": run at " + std::to_string(run.start) + " after one that ends at " + std::to_string(end));
    }
    if (in.failed()) return {};
    for (std::uint32_t k = 0; k < run.length; ++k) bits.push_back(CacheBit{run.start + k});
    end = run.start + run.length;
  }
  return bits;
}

void put_request(ByteWriter& out, const Request& request) {
  out.put(static_cast<std::int32_t>(request.rank));
  out.put(static_cast<std::int32_t>(request.device));
  put_common(out, request);
}

Request get_request(ByteReader& in) {
  Request request;
  request.rank = get_rank(in, 0, "requesting rank");
  request.device = in.get<std::int32_t>();
  if (request.device < kCpuDevice || request.device > kMaxDevice) {
    in.fail("device " + std::to_string(request.device) + ": expected -1 .. " + std::to_string(kMaxDevice));
  }
  get_common(in, request);
  if (request.op == OpType::kJoin) in.fail("a join among the requests");
  return request;
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
  return kFixedPart + 8 * request.shape.size() + request.name.size();
}

std::size_t encoded_size_bound(const Response& response) {
  return kFixedPart + 8 * response.shape.size() + response.name.size() + 8 * response.first_dims.size() +
         4 * response.joined.size() + response.error_message.size();
}

std::size_t encoded_size_bound(const SetChange& change) {
  std::size_t size = kFixedPart;
  for (const auto& ranks : change.rank_lists) size += 4 + 4 * ranks.size();
  return size;
}

}  // namespace hvd::wire
