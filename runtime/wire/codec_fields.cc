// The fields that are written in another form than they are kept, and how much all take.
#include "runtime/wire/codec_fields.h"

#include <algorithm>

namespace hvd::wire {

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

std::uint16_t get_elements_size(ByteReader& in) {
  const auto size = in.get<std::uint16_t>();
  if (!in.failed() && (size == 0 || size > kMaxElementsBytes)) {
    in.fail("elements of " + std::to_string(size) + " bytes: expected 1 .. " + std::to_string(kMaxElementsBytes));
  }
  return size;
}

void bits(FieldWriter& io, std::vector<CacheBit> values, const char*) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::vector<Run> runs;
  for (const CacheBit bit : values) {
    if (!runs.empty() && value(bit) == runs.back().start + runs.back().length) {
      ++runs.back().length;
    } else {
      runs.push_back({value(bit), 1});
    }
  }
  io.out.put(static_cast<std::uint32_t>(runs.size()));
  for (const Run& run : runs) put_run(io.out, run);
}

void bits(FieldReader& io, std::vector<CacheBit>& values, const char* what) {
  const std::uint32_t count = io.in.get_count(kMaxBits, kRunBytes);
  std::uint64_t end = 0;  // one past the run before
  for (std::uint32_t i = 0; i < count; ++i) {
    const Run run = get_run(io.in, kMaxBits - values.size());
    if (!io.in.failed() && run.start <= end) {
      io.fail(std::string(what) + ": run at " + std::to_string(run.start) + " after one that ends at " +
              std::to_string(end));
    }
    if (io.in.failed()) return;
    for (std::uint32_t k = 0; k < run.length; ++k) values.push_back(CacheBit{run.start + k});
    end = run.start + run.length;
  }
}

void shape(FieldWriter& io, const Shape& shape) {
  io.number(static_cast<std::uint8_t>(shape.size()));
  for (const std::int64_t d : shape) io.number(d);
}

void shape(FieldReader& io, Shape& shape) {
  constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 8;
  shape.resize(io.in.get<std::uint8_t>());
  std::int64_t elements = 1;
  for (std::int64_t& d : shape) {
    io.number(d);
    if (d < 0 || (d > 0 && elements > kMaxElements / d)) {
      return io.fail("dimension " + std::to_string(d) + ": negative, or the tensor has 2^63 bytes or more");
    }
    if (d > 0) elements *= d;
  }
}

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
