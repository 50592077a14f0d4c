#include "runtime/recorder/flight_recorder.h"

#include "runtime/base/log.h"

namespace hvd::recorder {

namespace {
constexpr std::size_t kNameLimit = 63;
constexpr std::ptrdiff_t kHistory = 6;

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kSubmitted: return "submitted";
    case Phase::kStarted: return "started";
    case Phase::kDone: return "done";
    case Phase::kFailed: return "failed";
  }
  return "unknown";
}

}  // namespace

void FlightRecorder::record(Phase phase, OpType op, std::int32_t process_set, std::string_view name, TimePoint now) {
  HVD_LOG(kTrace, phase_name(phase), " ", op_type_name(op), " \"", name, "\"", log_field("set", process_set));
  const MutexLock lock(mutex_);
  Record& slot = ring_[next_ % kCapacity];
  slot.sequence = ++next_;
  slot.when = now;
  slot.phase = phase;
  slot.op = op;
  slot.process_set = process_set;
  slot.name.assign(name.substr(0, kNameLimit));
}

std::vector<Record> FlightRecorder::snapshot() const {
  const MutexLock lock(mutex_);
  std::vector<Record> out;
  const std::uint64_t first = next_ > kCapacity ? next_ - kCapacity : 0;
  for (std::uint64_t i = first; i < next_; ++i) out.push_back(ring_[i % kCapacity]);
  return out;
}

std::string FlightRecorder::history(TimePoint now) const {
  const std::vector<Record> records = snapshot();
  std::string text;
  for (auto at = records.rbegin(); at != records.rend() && at - records.rbegin() < kHistory; ++at) {
    const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(now - at->when).count() / 100;
    text += (text.empty() ? "" : ", ") + std::string(phase_name(at->phase)) + " " + std::string(op_type_name(at->op)) +
            " \"" + at->name + "\" " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s ago";
  }
  return text.empty() ? "none" : text;
}

}  // namespace hvd::recorder
