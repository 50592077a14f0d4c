// The stream of frames between launcher and agent: cutting it in two gives the same frames, and every message that
// decodes encodes to the same bytes.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"
#include "runtime/base/check.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::vector<Frame> decode_all(FrameDecoder& decoder) {
  std::vector<Frame> frames;
  for (;;) {
    const auto next = decoder.next();
    if (!next.is_ok() || !next.value().has_value()) return frames;
    frames.push_back(*next.value());
  }
}

template <typename T>
void check_round_trip(const Result<T>& message, ByteSpan payload) {
  if (!message.is_ok()) {
    HVD_CHECK(!message.status().message().empty(), "an error says what is wrong");
    return;
  }
  const Bytes again = encode(message.value());
  HVD_CHECK(again == Bytes(payload.begin(), payload.end()), "the round trip keeps the bytes");
}

void check_message(const Frame& frame) {
  const ByteSpan payload = frame.payload;
  switch (frame.type) {
    case FrameType::kLaunch: return check_round_trip(decode_launch(payload), payload);
    case FrameType::kOpenBelow: return check_round_trip(decode_open_below(payload), payload);
    case FrameType::kLaunchBelow: return check_round_trip(decode_launch_below(payload), payload);
    case FrameType::kSignal: return check_round_trip(decode_signal(payload), payload);
    case FrameType::kStart: return check_round_trip(decode_start(payload), payload);
    case FrameType::kStop: return check_round_trip(decode_stop(payload), payload);
    case FrameType::kShutdown: return check_round_trip(decode_shutdown(payload), payload);
    case FrameType::kInput: return check_round_trip(decode_input(payload), payload);
    case FrameType::kInputTaken: return check_round_trip(decode_input_taken(payload), payload);
    case FrameType::kHello: return check_round_trip(decode_hello(payload), payload);
    case FrameType::kStarted: return check_round_trip(decode_started(payload), payload);
    case FrameType::kNotStarted: return check_round_trip(decode_not_started(payload), payload);
    case FrameType::kOutput: return check_round_trip(decode_output(payload), payload);
    case FrameType::kOutputEnd: return check_round_trip(decode_output_end(payload), payload);
    case FrameType::kEnded: return check_round_trip(decode_ended(payload), payload);
    case FrameType::kFailing: return check_round_trip(decode_failing(payload), payload);
    case FrameType::kStacks: return check_round_trip(decode_stacks(payload), payload);
    case FrameType::kStalled: return check_round_trip(decode_stalled(payload), payload);
    case FrameType::kWorked: return check_round_trip(decode_worked(payload), payload);
    case FrameType::kStopped: return check_round_trip(decode_stopped(payload), payload);
    case FrameType::kDraining: return check_round_trip(decode_draining(payload), payload);
    case FrameType::kLost:
    case FrameType::kNotice:
    case FrameType::kError: return check_round_trip(decode_text(payload), payload);
    case FrameType::kCloseBelow:
    case FrameType::kAskStacks:
    case FrameType::kStacksEnd:
    case FrameType::kAlive:
    case FrameType::kDone: return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan stream(data, size);
  FrameDecoder whole;
  whole.feed(stream);
  const std::vector<Frame> frames = decode_all(whole);
  for (const Frame& frame : frames) check_message(frame);

  FrameDecoder halves;
  const std::size_t cut = size / 2;
  halves.feed(stream.first(cut));
  std::vector<Frame> again = decode_all(halves);
  halves.feed(stream.subspan(cut));
  for (Frame& frame : decode_all(halves)) again.push_back(std::move(frame));
  HVD_CHECK(again.size() == frames.size(), "a cut changes nothing");
  for (std::size_t i = 0; i < frames.size(); ++i) {
    HVD_CHECK(
        again[i].type == frames[i].type && again[i].agent == frames[i].agent && again[i].payload == frames[i].payload,
        "a cut changes no frame");
  }
  return 0;
}
