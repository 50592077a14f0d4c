#include "launcher/protocol/messages.h"

#include <concepts>
#include <limits>
#include <type_traits>

namespace hvd::launcher {
namespace {

// What a message is made of on the wire: each kind of field is written by one of these, and read and checked by the
// other.
class FieldWriter {
 public:
  void process(const Incarnation& value) {
    out_.put(value.slot);
    out_.put(value.number);
  }
  template <typename T>
  void number(T value) {
    out_.put(value);
  }
  void number_in(const char*, std::int32_t value, std::int32_t, std::int32_t) { out_.put(value); }
  void flag(bool value) { out_.put(static_cast<std::uint8_t>(value ? 1 : 0)); }
  void stream(OutputStream value) { out_.put(static_cast<std::uint8_t>(value)); }
  void text(const std::string& value) { out_.put_string(std::string_view(value).substr(0, kMaxText)); }
  void bytes(const Bytes& value, std::size_t) { out_.put_bytes(value); }
  Bytes take() { return out_.take(); }

 private:
  ByteWriter out_;
};

class FieldReader {
 public:
  explicit FieldReader(ByteSpan payload) : in_(payload) {}

  void process(Incarnation& value) {
    number_in("slot", value.slot, 0, std::numeric_limits<std::int32_t>::max());
    number(value.number);
    if (value.number == 0) in_.fail("incarnation 0, expected 1 or more");
  }
  template <typename T>
  void number(T& value) {
    value = in_.get<T>();
  }
  void number_in(const char* what, std::int32_t& value, std::int32_t low, std::int32_t high) {
    number(value);
    if (value < low || value > high) in_.fail(std::string(what) + " " + std::to_string(value) + " is out of range");
  }
  void flag(bool& value) {
    const auto byte = in_.get<std::uint8_t>();
    if (byte > 1) in_.fail("a flag is " + std::to_string(byte) + ", expected 0 or 1");
    value = byte == 1;
  }
  void stream(OutputStream& value) {
    const auto byte = in_.get<std::uint8_t>();
    if (byte > static_cast<std::uint8_t>(OutputStream::kResult)) {
      in_.fail("output of stream " + std::to_string(byte) + ", expected 0 to 2");
    }
    value = static_cast<OutputStream>(byte);
  }
  void text(std::string& value) { value = in_.get_string(kMaxText); }
  void bytes(Bytes& value, std::size_t max_size) {
    const ByteSpan read = in_.get_bytes(max_size);
    value.assign(read.begin(), read.end());
  }
  Status finish(const char* what) const { return in_.finish(what); }

 private:
  ByteReader in_;
};

template <typename M, typename Message>
concept Is = std::same_as<std::remove_const_t<M>, Message>;

void fields(auto& io, Is<SignalMessage> auto& message) {
  io.number_in("slot", message.slot, SignalMessage::kAllSlots, std::numeric_limits<std::int32_t>::max());
  io.number_in("signal", message.signal, 1, 64);
}
void fields(auto& io, Is<StopMessage> auto& message) {
  io.number_in("slot", message.slot, 0, std::numeric_limits<std::int32_t>::max());
  io.number(message.grace_ms);
}
void fields(auto& io, Is<ShutdownMessage> auto& message) { io.flag(message.at_once); }
void fields(auto& io, Is<InputMessage> auto& message) {
  io.process(message.process);
  io.bytes(message.bytes, kMaxInputChunk);
}
void fields(auto& io, Is<InputTakenMessage> auto& message) {
  io.process(message.process);
  io.number(message.size);
}
void fields(auto& io, Is<HelloMessage> auto& message) {
  io.text(message.version);
  io.text(message.node);
  io.number(message.pid);
}
void fields(auto& io, Is<StartedMessage> auto& message) {
  io.process(message.process);
  io.number(message.pid);
}
void fields(auto& io, Is<NotStartedMessage> auto& message) {
  io.process(message.process);
  io.number_in("exit code", message.code, 1, 255);
  io.text(message.reason);
}
void fields(auto& io, Is<OutputMessage> auto& message) {
  io.process(message.process);
  io.stream(message.stream);
  io.bytes(message.bytes, kMaxOutputChunk);
}
void fields(auto& io, Is<OutputEndMessage> auto& message) {
  io.process(message.process);
  io.stream(message.stream);
}
void fields(auto& io, Is<EndedMessage> auto& message) {
  io.process(message.process);
  io.number_in("exit code", message.code, 0, 255);
  io.number_in("signal", message.signal, 0, 127);
  io.number(message.memory_kills);
  io.flag(message.of_group);
}
void fields(auto& io, Is<FailingMessage> auto& message) {
  io.process(message.process);
  io.flag(message.is_leaving);
}

void fields(auto& io, Is<StalledMessage> auto& message) {
  io.process(message.process);
  io.number_in("rank", message.rank, 0, std::numeric_limits<std::int32_t>::max());
}
void fields(auto& io, Is<WorkedMessage> auto& message) {
  io.process(message.process);
  io.number(message.work.collectives);
  io.number(message.work.bytes);
  io.number(message.work.waited_us);
  io.number(message.work.session_us);
}
void fields(auto& io, Is<StoppedMessage> auto& message) {
  io.process(message.process);
  io.flag(message.is_stopped);
}
void fields(auto& io, Is<StacksMessage> auto& message) {
  io.process(message.process);
  io.text(message.text);
}
void fields(auto& io, Is<DrainingMessage> auto& message) {
  io.number_in("slot", message.slot, SignalMessage::kAllSlots, std::numeric_limits<std::int32_t>::max());
}
void fields(auto& io, Is<TextMessage> auto& message) { io.text(message.text); }

template <typename Message>
Bytes encode_fields(const Message& message) {
  FieldWriter io;
  fields(io, message);
  return io.take();
}

template <typename Message>
Result<Message> decode_fields(ByteSpan payload, const char* what) {
  FieldReader io(payload);
  Message message;
  fields(io, message);
  HVD_RETURN_IF_ERROR(io.finish(what));
  return message;
}

}  // namespace

Bytes encode(const SignalMessage& message) { return encode_fields(message); }
Bytes encode(const StopMessage& message) { return encode_fields(message); }
Bytes encode(const ShutdownMessage& message) { return encode_fields(message); }
Bytes encode(const InputMessage& message) { return encode_fields(message); }
Bytes encode(const InputTakenMessage& message) { return encode_fields(message); }
Bytes encode(const HelloMessage& message) { return encode_fields(message); }
Bytes encode(const StartedMessage& message) { return encode_fields(message); }
Bytes encode(const NotStartedMessage& message) { return encode_fields(message); }
Bytes encode(const OutputMessage& message) { return encode_fields(message); }
Bytes encode(const OutputEndMessage& message) { return encode_fields(message); }
Bytes encode(const EndedMessage& message) { return encode_fields(message); }
Bytes encode(const FailingMessage& message) { return encode_fields(message); }
Bytes encode(const StalledMessage& message) { return encode_fields(message); }
Bytes encode(const WorkedMessage& message) { return encode_fields(message); }
Bytes encode(const StoppedMessage& message) { return encode_fields(message); }
Bytes encode(const StacksMessage& message) { return encode_fields(message); }
Bytes encode(const DrainingMessage& message) { return encode_fields(message); }
Bytes encode(const TextMessage& message) { return encode_fields(message); }

Result<SignalMessage> decode_signal(ByteSpan payload) { return decode_fields<SignalMessage>(payload, "signal frame"); }
Result<StopMessage> decode_stop(ByteSpan payload) { return decode_fields<StopMessage>(payload, "stop frame"); }
Result<ShutdownMessage> decode_shutdown(ByteSpan payload) {
  return decode_fields<ShutdownMessage>(payload, "shutdown frame");
}
Result<InputMessage> decode_input(ByteSpan payload) { return decode_fields<InputMessage>(payload, "input frame"); }
Result<InputTakenMessage> decode_input_taken(ByteSpan payload) {
  return decode_fields<InputTakenMessage>(payload, "input-taken frame");
}
Result<HelloMessage> decode_hello(ByteSpan payload) { return decode_fields<HelloMessage>(payload, "hello frame"); }
Result<StartedMessage> decode_started(ByteSpan payload) {
  return decode_fields<StartedMessage>(payload, "started frame");
}
Result<NotStartedMessage> decode_not_started(ByteSpan payload) {
  return decode_fields<NotStartedMessage>(payload, "not-started frame");
}
Result<OutputMessage> decode_output(ByteSpan payload) { return decode_fields<OutputMessage>(payload, "output frame"); }
Result<OutputEndMessage> decode_output_end(ByteSpan payload) {
  return decode_fields<OutputEndMessage>(payload, "output-end frame");
}
Result<EndedMessage> decode_ended(ByteSpan payload) { return decode_fields<EndedMessage>(payload, "ended frame"); }
Result<WorkedMessage> decode_worked(ByteSpan payload) { return decode_fields<WorkedMessage>(payload, "worked frame"); }
Result<StalledMessage> decode_stalled(ByteSpan payload) {
  return decode_fields<StalledMessage>(payload, "stalled frame");
}
Result<StoppedMessage> decode_stopped(ByteSpan payload) {
  return decode_fields<StoppedMessage>(payload, "stopped frame");
}
Result<FailingMessage> decode_failing(ByteSpan payload) {
  return decode_fields<FailingMessage>(payload, "failing frame");
}
Result<StacksMessage> decode_stacks(ByteSpan payload) { return decode_fields<StacksMessage>(payload, "stacks frame"); }
Result<DrainingMessage> decode_draining(ByteSpan payload) {
  return decode_fields<DrainingMessage>(payload, "draining frame");
}
Result<TextMessage> decode_text(ByteSpan payload) { return decode_fields<TextMessage>(payload, "text frame"); }

}  // namespace hvd::launcher
