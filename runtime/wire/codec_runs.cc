// The fields that are lists of ranks or bits: runs of consecutive ones, in one form.
#include <algorithm>
#include <limits>

#include "runtime/wire/codec_fields.h"

namespace hvd::wire::fields {

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

std::uint16_t get_elements_size(ByteReader& in) {
  const auto size = in.get<std::uint16_t>();
  if (!in.failed() && (size == 0 || size > kMaxElementsBytes)) {
    in.fail("elements of " + std::to_string(size) + " bytes: expected 1 .. " + std::to_string(kMaxElementsBytes));
  }
  return size;
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
      in.fail(std::string(what) + ": run at " + std::to_string(run.start) + " after one that ends at " +
              std::to_string(end));
    }
    if (in.failed()) return {};
    for (std::uint32_t k = 0; k < run.length; ++k) bits.push_back(CacheBit{run.start + k});
    end = run.start + run.length;
  }
  return bits;
}

void put_rank_runs(ByteWriter& out, const RankRuns& runs, bool with_dims) {
  out.put(static_cast<std::uint32_t>(runs.size()));
  for (const RankRun& run : runs) {
    out.put(static_cast<std::int32_t>(run.first));
    out.put(static_cast<std::uint32_t>(run.count));
    if (with_dims) out.put(run.first_dim);
  }
}

RankRuns get_rank_runs(ByteReader& in, bool with_dims, const char* what) {
  RankRuns runs(in.get_count(kMaxRanks, 8));
  if (runs.empty()) in.fail(std::string(what) + ": none");
  const RankRun* previous = nullptr;
  for (RankRun& run : runs) {
    run.first = get_rank(in, 0, what);
    const auto count = in.get<std::uint32_t>();
    if (count == 0 || count > kMaxRanks - static_cast<std::size_t>(run.first)) {
      in.fail(std::string(what) + ": " + std::to_string(count) + " ranks from " + std::to_string(run.first));
    }
    run.count = static_cast<int>(count);
    if (with_dims) run.first_dim = in.get<std::int64_t>();
    if (run.first_dim < 0) in.fail("first dimension " + std::to_string(run.first_dim) + ": negative");
    if (in.failed()) return {};
    const auto joins = [&run](const RankRun& before) {
      const int end = before.first + before.count;
      return run.first < end || (run.first == end && run.first_dim == before.first_dim);
    };
    if (previous != nullptr && joins(*previous)) {
      in.fail(std::string(what) + " " + std::to_string(run.first) + ": not ascending, or part of the run before");
      return {};
    }
    previous = &run;
  }
  return runs;
}

}  // namespace hvd::wire::fields
