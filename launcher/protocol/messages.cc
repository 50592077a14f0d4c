#include "launcher/protocol/messages.h"

#include <limits>

#include "launcher/protocol/cookie.h"
#include "launcher/protocol/frame.h"
#include "runtime/base/fields.h"

namespace hvd::launcher {
namespace {

constexpr std::int32_t kMaxNumber = std::numeric_limits<std::int32_t>::max();

void process(auto& io, Is<Incarnation> auto& value) {
  io.number_in("slot", value.slot, 0, kMaxNumber);
  io.number(value.number);
  if (value.number == 0) io.fail("incarnation 0, expected 1 or more");
}

// A string that becomes an argument, a variable or a path: a NUL in it would silently cut it short.
void c_string(auto& io, Is<std::string> auto& value) {
  io.text(value, kMaxLaunchBytes);
  if (value.find('\0') != std::string::npos) io.fail("a string holds a NUL byte");
}

void strings(auto& io, auto& values, std::size_t max_count) {
  io.list(values, max_count, sizeof(std::uint32_t), [&io](auto& value) { c_string(io, value); });
}

void environment(auto& io, Is<EnvironmentList> auto& env) {
  io.list(env, kMaxEnvironment, 2 * sizeof(std::uint32_t), [&io](auto& variable) {
    auto& [name, value] = variable;
    c_string(io, name);
    c_string(io, value);
    if (name.empty() || name.find('=') != std::string::npos) io.fail("'" + name + "' is not the name of a variable");
  });
}

void addresses(auto& io, auto& values) {
  strings(io, values, kMaxAddresses);
  if (values.empty()) io.fail("there is no rendezvous address");
}

}  // namespace

// All but the secret.
void fields(auto& io, Is<LaunchMessage> auto& message) {
  c_string(io, message.cwd);
  environment(io, message.env);
  strings(io, message.command, kMaxCommandWords);
  if (message.command.empty() || message.command[0].empty()) io.fail("there is no command");
  io.number(message.rendezvous_port);
  addresses(io, message.rendezvous_addresses);
  io.number(message.ignored_signals);
  io.number_in("slots", message.slots, 1u, kMaxSlotsPerAgent);
  io.flag("announces threads", message.announces_threads);
  io.number(message.grace_ms);
  io.choice("binding", message.binding.bind, Bind::kGpu);
  io.flag("one GPU", message.binding.one_gpu);
  io.flag("grows", message.binding.grows);
  io.flag("tells binding", message.tells_binding);
  io.flag("needs cwd", message.needs_cwd);
}
void fields(auto& io, Is<LaunchBelowMessage> auto& message) {
  addresses(io, message.rendezvous_addresses);
  io.number_in("slots", message.slots, 1u, kMaxSlotsPerAgent);
  io.flag("announces threads", message.announces_threads);
}
void fields(auto& io, Is<OpenBelowMessage> auto& message) {
  io.number_in("agent", message.agent, 0, kMaxNumber);
  c_string(io, message.host);
  c_string(io, message.agent_path);
  c_string(io, message.cookie);
  strings(io, message.argv, kMaxStarterWords);
  if (!is_cookie(message.cookie)) io.fail("the cookie is not one");
  if (message.argv.empty() || message.argv[0].empty()) io.fail("there is nothing to execute");
}
void fields(auto& io, Is<StartMessage> auto& message) {
  process(io, message.process);
  io.flag("has input", message.has_input);
  io.flag("gives result", message.gives_result);
  environment(io, message.env);
}
void fields(auto& io, Is<SignalMessage> auto& message) {
  io.number_in("slot", message.slot, SignalMessage::kAllSlots, kMaxNumber);
  io.number_in("signal", message.signal, 1, 64);
}
void fields(auto& io, Is<StopMessage> auto& message) {
  io.number_in("slot", message.slot, 0, kMaxNumber);
  io.number(message.grace_ms);
}
void fields(auto& io, Is<ShutdownMessage> auto& message) { io.flag("at once", message.at_once); }
void fields(auto& io, Is<InputMessage> auto& message) {
  process(io, message.process);
  io.bytes(message.bytes, kMaxInputChunk);
}
void fields(auto& io, Is<InputTakenMessage> auto& message) {
  process(io, message.process);
  io.number(message.size);
}
void fields(auto& io, Is<HelloMessage> auto& message) {
  io.short_text(message.version, kMaxText);
  io.short_text(message.node, kMaxText);
  io.number(message.pid);
}
void fields(auto& io, Is<StartedMessage> auto& message) {
  process(io, message.process);
  io.number(message.pid);
}
void fields(auto& io, Is<NotStartedMessage> auto& message) {
  process(io, message.process);
  io.number_in("exit code", message.code, 1, 255);
  io.short_text(message.reason, kMaxText);
}
void fields(auto& io, Is<OutputMessage> auto& message) {
  process(io, message.process);
  io.choice("stream", message.stream, OutputStream::kResult);
  io.bytes(message.bytes, kMaxOutputChunk);
}
void fields(auto& io, Is<OutputEndMessage> auto& message) {
  process(io, message.process);
  io.choice("stream", message.stream, OutputStream::kResult);
}
void fields(auto& io, Is<EndedMessage> auto& message) {
  process(io, message.process);
  io.number_in("exit code", message.code, 0, 255);
  io.number_in("signal", message.signal, 0, 127);
  io.number(message.memory_kills);
  io.flag("of group", message.of_group);
}
void fields(auto& io, Is<FailingMessage> auto& message) {
  process(io, message.process);
  io.flag("is leaving", message.is_leaving);
}
void fields(auto& io, Is<StalledMessage> auto& message) {
  process(io, message.process);
  io.number_in("rank", message.rank, 0, kMaxNumber);
}
void fields(auto& io, Is<WorkedMessage> auto& message) {
  process(io, message.process);
  fields(io, message.work);
}
void fields(auto& io, Is<StoppedMessage> auto& message) {
  process(io, message.process);
  io.flag("is stopped", message.is_stopped);
}
void fields(auto& io, Is<StacksMessage> auto& message) {
  process(io, message.process);
  io.short_text(message.text, kMaxText);
}
void fields(auto& io, Is<DrainingMessage> auto& message) {
  io.number_in("slot", message.slot, SignalMessage::kAllSlots, kMaxNumber);
}
void fields(auto& io, Is<TextMessage> auto& message) { io.short_text(message.text, kMaxText); }

template <typename Message>
constexpr const char* kFrame = nullptr;  // what errors call it

template <typename Message>
Bytes encode(const Message& message) {
  return encode_fields(message);
}

template <typename Message>
Result<Message> decode(ByteSpan payload) {
  return decode_fields<Message>(payload, kFrame<Message>);
}

Bytes encode(const LaunchMessage& message) {
  const Bytes rest = encode_fields(message);
  ByteWriter out;
  out.reserve(sizeof(std::uint32_t) + crypto::kSecretSize + rest.size());  // bytes that grow leave a copy behind
  out.put_bytes(message.secret.bytes());
  out.put_raw(rest);
  return out.take();
}

Result<LaunchMessage> decode_launch(ByteSpan payload) {
  FieldReader io(payload);
  const ByteSpan secret_bytes = io.in.get_bytes(crypto::kSecretSize);
  if (io.in.failed()) return io.in.finish("launch frame");
  HVD_ASSIGN_OR_RETURN(crypto::Secret secret, crypto::Secret::from_bytes(secret_bytes));
  LaunchMessage message{
      .secret = secret, .cwd = {}, .env = {}, .command = {}, .rendezvous_port = 0, .rendezvous_addresses = {}};
  fields(io, message);
  HVD_RETURN_IF_ERROR(io.in.finish("launch frame"));
  return message;
}

#define HVD_FRAME(Message, name)                         \
  template <>                                            \
  constexpr const char* kFrame<Message> = name " frame"; \
  template Bytes encode(const Message&);                 \
  template Result<Message> decode(ByteSpan)

HVD_FRAME(StartMessage, "start");
HVD_FRAME(OpenBelowMessage, "open-below");
HVD_FRAME(LaunchBelowMessage, "launch-below");
HVD_FRAME(SignalMessage, "signal");
HVD_FRAME(StopMessage, "stop");
HVD_FRAME(ShutdownMessage, "shutdown");
HVD_FRAME(InputMessage, "input");
HVD_FRAME(InputTakenMessage, "input-taken");
HVD_FRAME(HelloMessage, "hello");
HVD_FRAME(StartedMessage, "started");
HVD_FRAME(NotStartedMessage, "not-started");
HVD_FRAME(OutputMessage, "output");
HVD_FRAME(OutputEndMessage, "output-end");
HVD_FRAME(EndedMessage, "ended");
HVD_FRAME(FailingMessage, "failing");
HVD_FRAME(StalledMessage, "stalled");
HVD_FRAME(WorkedMessage, "worked");
HVD_FRAME(StoppedMessage, "stopped");
HVD_FRAME(StacksMessage, "stacks");
HVD_FRAME(DrainingMessage, "draining");
HVD_FRAME(TextMessage, "text");

}  // namespace hvd::launcher
