// The messages by which processes come to be: what an agent's processes share, what is one's own, and the agents that
// another starts.
#include "launcher/protocol/cookie.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"

namespace hvd::launcher {
namespace {

void put_strings(ByteWriter& out, const std::vector<std::string>& strings) {
  out.put(static_cast<std::uint32_t>(strings.size()));
  for (const std::string& s : strings) out.put_string(s);
}

// A string that becomes an argument, a variable or a path: a NUL in it would silently cut it short.
std::string get_c_string(ByteReader& in) {
  std::string text = in.get_string(kMaxLaunchBytes);
  if (text.find('\0') != std::string::npos) in.fail("a string holds a NUL byte");
  return text;
}

std::vector<std::string> get_strings(ByteReader& in, std::size_t max_count) {
  std::vector<std::string> strings(in.get_count(max_count, sizeof(std::uint32_t)));
  for (std::string& s : strings) s = get_c_string(in);
  return strings;
}

void put_environment(ByteWriter& out, const EnvironmentList& env) {
  out.put(static_cast<std::uint32_t>(env.size()));
  for (const auto& [name, value] : env) {
    out.put_string(name);
    out.put_string(value);
  }
}

EnvironmentList get_environment(ByteReader& in) {
  EnvironmentList env(in.get_count(kMaxEnvironment, 2 * sizeof(std::uint32_t)));
  for (auto& [name, value] : env) {
    name = get_c_string(in);
    value = get_c_string(in);
    const bool is_name = !name.empty() && name.find('=') == std::string::npos;
    if (!is_name && !in.failed()) in.fail("'" + name + "' is not the name of a variable");
  }
  return env;
}

bool get_flag(ByteReader& in) {
  const auto byte = in.get<std::uint8_t>();
  if (byte > 1) in.fail("a flag is " + std::to_string(byte) + ", expected 0 or 1");
  return byte == 1;
}

BindingConfig get_binding(ByteReader& in) {
  const auto bind = in.get<std::uint8_t>();
  if (bind > static_cast<std::uint8_t>(Bind::kGpu))
    in.fail("a binding is " + std::to_string(bind) + ", expected 0 to 3");
  return {.bind = static_cast<Bind>(bind), .one_gpu = get_flag(in), .grows = get_flag(in)};
}

// Of a LaunchMessage and of a LaunchBelowMessage.
void check_agent(const auto& message, ByteReader& in) {
  if (message.rendezvous_addresses.empty()) in.fail("there is no rendezvous address");
  if (message.slots < 1 || message.slots > kMaxSlotsPerAgent) {
    in.fail(std::to_string(message.slots) + " slots, expected 1 to " + std::to_string(kMaxSlotsPerAgent));
  }
}

void check_launch(const LaunchMessage& message, ByteReader& in) {
  if (message.command.empty() || message.command[0].empty()) in.fail("there is no command");
  check_agent(message, in);
}

// All but the secret.
Bytes encode_rest(const LaunchMessage& message) {
  ByteWriter out;
  out.put_string(message.cwd);
  put_environment(out, message.env);
  put_strings(out, message.command);
  out.put(message.rendezvous_port);
  put_strings(out, message.rendezvous_addresses);
  out.put(message.ignored_signals);
  out.put(message.slots);
  out.put(static_cast<std::uint8_t>(message.announces_threads ? 1 : 0));
  out.put(message.grace_ms);
  out.put(static_cast<std::uint8_t>(message.binding.bind));
  out.put(static_cast<std::uint8_t>(message.binding.one_gpu ? 1 : 0));
  out.put(static_cast<std::uint8_t>(message.binding.grows ? 1 : 0));
  out.put(static_cast<std::uint8_t>(message.tells_binding ? 1 : 0));
  out.put(static_cast<std::uint8_t>(message.needs_cwd ? 1 : 0));
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
  LaunchMessage message{
      .secret = secret, .cwd = {}, .env = {}, .command = {}, .rendezvous_port = 0, .rendezvous_addresses = {}};
  message.cwd = get_c_string(in);
  message.env = get_environment(in);
  message.command = get_strings(in, kMaxCommandWords);
  message.rendezvous_port = in.get<std::uint16_t>();
  message.rendezvous_addresses = get_strings(in, kMaxAddresses);
  message.ignored_signals = in.get<std::uint64_t>();
  message.slots = in.get<std::uint32_t>();
  message.announces_threads = get_flag(in);
  message.grace_ms = in.get<std::uint32_t>();
  message.binding = get_binding(in);
  message.tells_binding = get_flag(in);
  message.needs_cwd = get_flag(in);
  if (!in.failed()) check_launch(message, in);
  HVD_RETURN_IF_ERROR(in.finish("launch frame"));
  return message;
}

Bytes encode(const StartMessage& message) {
  ByteWriter out;
  out.put(message.process.slot);
  out.put(message.process.number);
  out.put(static_cast<std::uint8_t>(message.has_input ? 1 : 0));
  out.put(static_cast<std::uint8_t>(message.gives_result ? 1 : 0));
  put_environment(out, message.env);
  return out.take();
}

Result<StartMessage> decode_start(ByteSpan payload) {
  ByteReader in(payload);
  StartMessage message;
  message.process.slot = in.get<std::int32_t>();
  message.process.number = in.get<std::uint32_t>();
  message.has_input = get_flag(in);
  message.gives_result = get_flag(in);
  message.env = get_environment(in);
  if (message.process.slot < 0) in.fail("slot " + std::to_string(message.process.slot) + " is negative");
  if (message.process.number == 0) in.fail("incarnation 0, expected 1 or more");
  HVD_RETURN_IF_ERROR(in.finish("start frame"));
  return message;
}

Bytes encode(const OpenBelowMessage& message) {
  ByteWriter out;
  out.put(message.agent);
  out.put_string(message.host);
  out.put_string(message.agent_path);
  out.put_string(message.cookie);
  put_strings(out, message.argv);
  return out.take();
}

Result<OpenBelowMessage> decode_open_below(ByteSpan payload) {
  ByteReader in(payload);
  OpenBelowMessage message;
  message.agent = in.get<std::int32_t>();
  message.host = get_c_string(in);
  message.agent_path = get_c_string(in);
  message.cookie = get_c_string(in);
  message.argv = get_strings(in, kMaxStarterWords);
  if (message.agent < 0) in.fail("agent " + std::to_string(message.agent) + " is negative");
  if (!is_cookie(message.cookie)) in.fail("the cookie is not one");
  if (message.argv.empty() || message.argv[0].empty()) in.fail("there is nothing to execute");
  HVD_RETURN_IF_ERROR(in.finish("open-below frame"));
  return message;
}

Bytes encode(const LaunchBelowMessage& message) {
  ByteWriter out;
  put_strings(out, message.rendezvous_addresses);
  out.put(message.slots);
  out.put(static_cast<std::uint8_t>(message.announces_threads ? 1 : 0));
  return out.take();
}

Result<LaunchBelowMessage> decode_launch_below(ByteSpan payload) {
  ByteReader in(payload);
  LaunchBelowMessage message;
  message.rendezvous_addresses = get_strings(in, kMaxAddresses);
  message.slots = in.get<std::uint32_t>();
  message.announces_threads = get_flag(in);
  if (!in.failed()) check_agent(message, in);
  HVD_RETURN_IF_ERROR(in.finish("launch-below frame"));
  return message;
}

}  // namespace hvd::launcher
