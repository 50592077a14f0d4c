#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/messages.h"

// The building blocks of the grammar in docs/design/wire.md; private to the codec. Each put_x has its get_x; a get_x
// that finds something wrong fails the reader and returns anything.
namespace hvd::wire::fields {

enum class MessageKind : std::uint8_t { kReport = 1, kDecision = 2 };

void put_header(ByteWriter& out, MessageKind kind);
void get_header(ByteReader& in, MessageKind expected);

// A u8 that is at most `max`.
template <typename Enum>
Enum get_enum(ByteReader& in, int max, const char* what) {
  const auto code = in.get<std::uint8_t>();
  if (code > max) {
    in.fail(std::string(what) + " " + std::to_string(code) + ": expected 0 .. " + std::to_string(max));
    return Enum{};
  }
  return static_cast<Enum>(code);
}
bool get_bool(ByteReader& in, const char* what);

// lowest <= rank < kMaxRanks; lowest is 0, or -1 where "none" is allowed.
int get_rank(ByteReader& in, int lowest, const char* what);
std::int32_t get_process_set(ByteReader& in);

// Strictly ascending ranks.
void put_ranks(ByteWriter& out, const std::vector<int>& ranks);
std::vector<int> get_ranks(ByteReader& in, const char* what);

// A set of bits as ascending runs of consecutive ones. get_bits returns them ascending.
void put_bits(ByteWriter& out, std::vector<CacheBit> bits);
std::vector<CacheBit> get_bits(ByteReader& in, const char* what);
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

// Runs of ranks in their one form; never empty. `with_dims`: each carries its first dimension.
void put_rank_runs(ByteWriter& out, const RankRuns& runs, bool with_dims);
RankRuns get_rank_runs(ByteReader& in, bool with_dims, const char* what);

void put_request(ByteWriter& out, const MergedRequest& merged);
MergedRequest get_request(ByteReader& in);
void put_response(ByteWriter& out, const Response& response);
Response get_response(ByteReader& in);

inline constexpr int kStatusCodeMax = static_cast<int>(StatusCode::kInternal);

}  // namespace hvd::wire::fields
