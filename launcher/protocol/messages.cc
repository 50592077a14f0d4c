#include "launcher/protocol/messages.h"

#include <algorithm>

namespace hvd::launcher {
namespace {

bool get_flag(ByteReader& in) {
  const auto value = in.get<std::uint8_t>();
  if (value > 1) in.fail("a flag is " + std::to_string(value) + ", expected 0 or 1");
  return value == 1;
}

std::int32_t get_rank(ByteReader& in) {
  const auto rank = in.get<std::int32_t>();
  if (rank < 0) in.fail("rank " + std::to_string(rank) + " is negative");
  return rank;
}

std::int32_t get_in(ByteReader& in, const char* what, std::int32_t low, std::int32_t high) {
  const auto value = in.get<std::int32_t>();
  if (value < low || value > high) in.fail(std::string(what) + " " + std::to_string(value) + " is out of range");
  return value;
}

std::string_view cut(const std::string& text) { return std::string_view(text).substr(0, kMaxText); }

// All of `message` was read and nothing is left, or the error.
template <typename T>
Result<T> finish(ByteReader& in, const char* what, T message) {
  HVD_RETURN_IF_ERROR(in.finish(what));
  return message;
}

}  // namespace

Bytes encode(const SignalMessage& message) {
  ByteWriter out;
  out.put(message.signal);
  return out.take();
}

Result<SignalMessage> decode_signal(ByteSpan payload) {
  ByteReader in(payload);
  SignalMessage message;
  message.signal = get_in(in, "signal", 1, 64);
  return finish(in, "signal frame", message);
}

Bytes encode(const ShutdownMessage& message) {
  ByteWriter out;
  out.put(static_cast<std::uint8_t>(message.at_once ? 1 : 0));
  return out.take();
}

Result<ShutdownMessage> decode_shutdown(ByteSpan payload) {
  ByteReader in(payload);
  ShutdownMessage message;
  message.at_once = get_flag(in);
  return finish(in, "shutdown frame", message);
}

Bytes encode(const InputMessage& message) {
  ByteWriter out;
  out.put(message.rank);
  out.put_bytes(message.bytes);
  return out.take();
}

Result<InputMessage> decode_input(ByteSpan payload) {
  ByteReader in(payload);
  InputMessage message;
  message.rank = get_rank(in);
  const ByteSpan bytes = in.get_bytes(kMaxInputChunk);
  message.bytes.assign(bytes.begin(), bytes.end());
  return finish(in, "input frame", std::move(message));
}

Bytes encode(const InputTakenMessage& message) {
  ByteWriter out;
  out.put(message.rank);
  out.put(message.size);
  return out.take();
}

Result<InputTakenMessage> decode_input_taken(ByteSpan payload) {
  ByteReader in(payload);
  InputTakenMessage message;
  message.rank = get_rank(in);
  message.size = in.get<std::uint32_t>();
  return finish(in, "input-taken frame", message);
}

Bytes encode(const HelloMessage& message) {
  ByteWriter out;
  out.put_string(cut(message.version));
  out.put_string(cut(message.node));
  out.put(message.pid);
  return out.take();
}

Result<HelloMessage> decode_hello(ByteSpan payload) {
  ByteReader in(payload);
  HelloMessage message;
  message.version = in.get_string(kMaxText);
  message.node = in.get_string(kMaxText);
  message.pid = in.get<std::int32_t>();
  return finish(in, "hello frame", std::move(message));
}

Bytes encode(const RankStartedMessage& message) {
  ByteWriter out;
  out.put(message.rank);
  out.put(message.pid);
  return out.take();
}

Result<RankStartedMessage> decode_rank_started(ByteSpan payload) {
  ByteReader in(payload);
  RankStartedMessage message;
  message.rank = get_rank(in);
  message.pid = in.get<std::int32_t>();
  return finish(in, "rank-started frame", message);
}

Bytes encode(const RankNotStartedMessage& message) {
  ByteWriter out;
  out.put(message.rank);
  out.put(message.code);
  out.put_string(cut(message.reason));
  return out.take();
}

Result<RankNotStartedMessage> decode_rank_not_started(ByteSpan payload) {
  ByteReader in(payload);
  RankNotStartedMessage message;
  message.rank = get_rank(in);
  message.code = get_in(in, "exit code", 1, 255);
  message.reason = in.get_string(kMaxText);
  return finish(in, "rank-not-started frame", std::move(message));
}

Bytes encode(const OutputMessage& message) {
  ByteWriter out;
  out.put(message.rank);
  out.put(static_cast<std::uint8_t>(message.is_stderr ? 1 : 0));
  out.put_bytes(message.bytes);
  return out.take();
}

Result<OutputMessage> decode_output(ByteSpan payload) {
  ByteReader in(payload);
  OutputMessage message;
  message.rank = get_rank(in);
  message.is_stderr = get_flag(in);
  const ByteSpan bytes = in.get_bytes(kMaxOutputChunk);
  message.bytes.assign(bytes.begin(), bytes.end());
  return finish(in, "output frame", std::move(message));
}

Bytes encode(const OutputEndMessage& message) {
  ByteWriter out;
  out.put(message.rank);
  out.put(static_cast<std::uint8_t>(message.is_stderr ? 1 : 0));
  return out.take();
}

Result<OutputEndMessage> decode_output_end(ByteSpan payload) {
  ByteReader in(payload);
  OutputEndMessage message;
  message.rank = get_rank(in);
  message.is_stderr = get_flag(in);
  return finish(in, "output-end frame", message);
}

Bytes encode(const RankExitedMessage& message) {
  ByteWriter out;
  out.put(message.rank);
  out.put(message.code);
  out.put(message.signal);
  return out.take();
}

Result<RankExitedMessage> decode_rank_exited(ByteSpan payload) {
  ByteReader in(payload);
  RankExitedMessage message;
  message.rank = get_rank(in);
  message.code = get_in(in, "exit code", 0, 255);
  message.signal = get_in(in, "signal", 0, 127);
  return finish(in, "rank-exited frame", message);
}

Bytes encode(const RankFailingMessage& message) {
  ByteWriter out;
  out.put(message.rank);
  out.put(static_cast<std::uint8_t>(message.is_leaving));
  return out.take();
}

Result<RankFailingMessage> decode_rank_failing(ByteSpan payload) {
  ByteReader in(payload);
  RankFailingMessage message;
  message.rank = get_rank(in);
  message.is_leaving = get_flag(in);
  return finish(in, "rank-failing frame", message);
}

Bytes encode(const TextMessage& message) {
  ByteWriter out;
  out.put_string(cut(message.text));
  return out.take();
}

Result<TextMessage> decode_text(ByteSpan payload) {
  ByteReader in(payload);
  TextMessage message;
  message.text = in.get_string(kMaxText);
  return finish(in, "text frame", std::move(message));
}

}  // namespace hvd::launcher
