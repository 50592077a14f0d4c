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
    case FrameType::kOpenBelow: return check_round_trip(decode<OpenBelowMessage>(payload), payload);
    case FrameType::kLaunchBelow: return check_round_trip(decode<LaunchBelowMessage>(payload), payload);
    case FrameType::kSignal: return check_round_trip(decode<SignalMessage>(payload), payload);
    case FrameType::kStart: return check_round_trip(decode<StartMessage>(payload), payload);
    case FrameType::kStop: return check_round_trip(decode<StopMessage>(payload), payload);
    case FrameType::kShutdown: return check_round_trip(decode<ShutdownMessage>(payload), payload);
    case FrameType::kInput: return check_round_trip(decode<InputMessage>(payload), payload);
    case FrameType::kInputTaken: return check_round_trip(decode<InputTakenMessage>(payload), payload);
    case FrameType::kHello: return check_round_trip(decode<HelloMessage>(payload), payload);
    case FrameType::kStarted: return check_round_trip(decode<StartedMessage>(payload), payload);
    case FrameType::kNotStarted: return check_round_trip(decode<NotStartedMessage>(payload), payload);
    case FrameType::kOutput: return check_round_trip(decode<OutputMessage>(payload), payload);
    case FrameType::kOutputEnd: return check_round_trip(decode<OutputEndMessage>(payload), payload);
    case FrameType::kEnded: return check_round_trip(decode<EndedMessage>(payload), payload);
    case FrameType::kFailing: return check_round_trip(decode<FailingMessage>(payload), payload);
    case FrameType::kStacks: return check_round_trip(decode<StacksMessage>(payload), payload);
    case FrameType::kStalled: return check_round_trip(decode<StalledMessage>(payload), payload);
    case FrameType::kWorked: return check_round_trip(decode<WorkedMessage>(payload), payload);
    case FrameType::kStopped: return check_round_trip(decode<StoppedMessage>(payload), payload);
    case FrameType::kDraining: return check_round_trip(decode<DrainingMessage>(payload), payload);
    case FrameType::kLost:
    case FrameType::kNotice:
    case FrameType::kError: return check_round_trip(decode<TextMessage>(payload), payload);
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
