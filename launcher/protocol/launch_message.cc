#include <set>

#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"

namespace hvd::launcher {
namespace {

void put_strings(ByteWriter& out, const std::vector<std::string>& strings) {
  out.put(static_cast<std::uint32_t>(strings.size()));
  for (const std::string& s : strings) out.put_string(s);
}

// A string that becomes an argument, a variable or a path: a NUL in it would cut it short without a word.
std::string get_c_string(ByteReader& in) {
  std::string text = in.get_string(kMaxLaunchBytes);
  if (text.find('\0') != std::string::npos) in.fail("a string of the launch frame holds a NUL byte");
  return text;
}

std::vector<std::string> get_strings(ByteReader& in, std::size_t max_count) {
  std::vector<std::string> strings(in.get_count(max_count, sizeof(std::uint32_t)));
  for (std::string& s : strings) s = get_c_string(in);
  return strings;
}

void put_slot(ByteWriter& out, const RankSlot& slot) {
  for (int value : {slot.rank, slot.size, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size}) {
    out.put(static_cast<std::int32_t>(value));
  }
}

RankSlot get_slot(ByteReader& in) {
  RankSlot slot;
  for (int* value : {&slot.rank, &slot.size, &slot.local_rank, &slot.local_size, &slot.cross_rank, &slot.cross_size}) {
    *value = in.get<std::int32_t>();
  }
  const bool sane = slot.rank >= 0 && slot.rank < slot.size && slot.local_rank >= 0 &&
                    slot.local_rank < slot.local_size && slot.cross_rank >= 0 && slot.cross_rank < slot.cross_size;
  if (!sane) in.fail("rank " + std::to_string(slot.rank) + " of " + std::to_string(slot.size) + " has no valid place");
  return slot;
}

void check_launch(const LaunchMessage& message, ByteReader& in) {
  if (message.command.empty() || message.command[0].empty()) in.fail("the launch frame has no command");
  if (message.ranks.empty()) in.fail("the launch frame has no ranks");
  if (message.rendezvous_addresses.empty()) in.fail("the launch frame has no rendezvous address");
  std::set<int> seen;
  for (const RankSlot& slot : message.ranks) {
    if (!seen.insert(slot.rank).second) in.fail("rank " + std::to_string(slot.rank) + " is there twice");
  }
  for (const std::int32_t rank : message.input_ranks) {
    if (!seen.contains(rank)) in.fail("rank " + std::to_string(rank) + " gets input, but is not there");
  }
  for (const auto& [name, value] : message.env) {
    if (name.empty() || name.find('=') != std::string::npos) in.fail("'" + name + "' is not the name of a variable");
  }
}

// All but the secret.
Bytes encode_rest(const LaunchMessage& message) {
  ByteWriter out;
  out.put_string(message.hostname);
  out.put_string(message.cwd);
  out.put(static_cast<std::uint32_t>(message.env.size()));
  for (const auto& [name, value] : message.env) {
    out.put_string(name);
    out.put_string(value);
  }
  put_strings(out, message.command);
  out.put(static_cast<std::uint32_t>(message.ranks.size()));
  for (const RankSlot& slot : message.ranks) put_slot(out, slot);
  out.put(message.rendezvous_port);
  put_strings(out, message.rendezvous_addresses);
  out.put(message.ignored_signals);
  out.put(static_cast<std::uint32_t>(message.input_ranks.size()));
  for (const std::int32_t rank : message.input_ranks) out.put(rank);
  return out.take();
}

}  // namespace

Bytes encode(const LaunchMessage& message) {
  const Bytes rest = encode_rest(message);
  ByteWriter out;
  out.reserve(sizeof(std::uint32_t) + crypto::kSecretSize + rest.size());  // bytes that grow leave a copy behind
  out.put_bytes(message.secret.bytes());
  out.put_raw(rest);
  return out.take();
}

Result<LaunchMessage> decode_launch(ByteSpan payload) {
  ByteReader in(payload);
  const ByteSpan secret_bytes = in.get_bytes(crypto::kSecretSize);
  if (in.failed()) return in.finish("launch frame");
  HVD_ASSIGN_OR_RETURN(crypto::Secret secret, crypto::Secret::from_bytes(secret_bytes));
  LaunchMessage message{.secret = secret,
                        .hostname = {},
                        .cwd = {},
                        .env = {},
                        .command = {},
                        .ranks = {},
                        .rendezvous_port = 0,
                        .rendezvous_addresses = {},
                        .ignored_signals = 0,
                        .input_ranks = {}};
  message.hostname = get_c_string(in);
  message.cwd = get_c_string(in);
  message.env.resize(in.get_count(kMaxEnvironment, 2 * sizeof(std::uint32_t)));
  for (auto& [name, value] : message.env) {
    name = get_c_string(in);
    value = get_c_string(in);
  }
  message.command = get_strings(in, kMaxCommandWords);
  message.ranks.resize(in.get_count(kMaxRanksPerAgent, 6 * sizeof(std::int32_t)));
  for (RankSlot& slot : message.ranks) slot = get_slot(in);
  message.rendezvous_port = in.get<std::uint16_t>();
  message.rendezvous_addresses = get_strings(in, kMaxAddresses);
  message.ignored_signals = in.get<std::uint64_t>();
  message.input_ranks.resize(in.get_count(kMaxRanksPerAgent, sizeof(std::int32_t)));
  for (std::int32_t& rank : message.input_ranks) rank = in.get<std::int32_t>();
  if (!in.failed()) check_launch(message, in);
  HVD_RETURN_IF_ERROR(in.finish("launch frame"));
  return message;
}

}  // namespace hvd::launcher
