#include "runtime/recorder/trace.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

namespace hvd::recorder {

namespace {

using Json = nlohmann::ordered_json;

// In ASCII, as old viewers want it; what is no UTF-8 is replaced.
std::string text_of(const Json& object) { return object.dump(-1, ' ', true, Json::error_handler_t::replace); }

void put(const Json& object, std::string& out) { out += ",\n" + text_of(object); }

Json metadata(const char* what, int pid, Json args) {
  return {{"name", what}, {"ph", "M"}, {"pid", pid}, {"args", std::move(args)}};
}

Json mark(const std::string& name, std::int64_t at) {
  return {{"ph", "i"}, {"name", name}, {"ts", at}, {"pid", 0}, {"s", "g"}};
}

}  // namespace

std::string in_capitals(std::string_view text) {
  std::string capitals(text);
  std::ranges::transform(capitals, capitals.begin(), [](unsigned char c) { return std::toupper(c); });
  return capitals;
}

std::string Trace::begin() const {
  std::string out = "[\n";
  out += text_of(metadata("process_name", 0, {{"start_time_since_epoch_in_micros", since_epoch_.count()}}));
  put(metadata("process_sort_index", 0, {{"sort_index", 0}}), out);
  return out;
}

std::int64_t Trace::micros(TimePoint when) const {
  return std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::microseconds>(when - start_).count());
}

Trace::Tensor& Trace::tensor_of(const TraceEvent& event, std::string& out) {
  const auto [at, is_new] = tensors_.try_emplace({event.process_set, event.name});
  Tensor& tensor = at->second;
  if (!is_new) return tensor;
  tensor.pid = static_cast<int>(tensors_.size());
  put(metadata("process_name", tensor.pid, {{"name", event.name}}), out);
  put(metadata("process_sort_index", tensor.pid, {{"sort_index", tensor.pid}}), out);
  return tensor;
}

void Trace::finish(TimePoint when, std::string& out) {
  TraceEvent event;
  event.when = when;
  for (auto& [key, tensor] : tensors_) {
    tensor.reported.clear();
    end(tensor, event, out);
  }
}

void Trace::put_begin(const Tensor& tensor, const TraceEvent& event, const std::string& name, std::string& out) const {
  put({{"ph", "B"}, {"name", name}, {"ts", micros(event.when)}, {"pid", tensor.pid}}, out);
}

void Trace::put_end(const Tensor& tensor, const TraceEvent& event, std::string& out) const {
  put({{"ph", "E"}, {"ts", micros(event.when)}, {"pid", tensor.pid}}, out);
}

void Trace::add(const TraceEvent& event, std::string& out) {
  using Kind = TraceEvent::Kind;
  if (event.kind == Kind::kCycle) return put(mark("CYCLE_START", micros(event.when)), out);
  if (event.kind == Kind::kLost) {
    return put(mark(std::to_string(event.count) + " EVENTS LOST", micros(event.when)), out);
  }
  // What began before the timeline did is not in it.
  const bool may_begin = event.kind == Kind::kReported || event.kind == Kind::kReleased;
  if (!may_begin && !tensors_.contains({event.process_set, event.name})) return;
  Tensor& tensor = tensor_of(event, out);
  switch (event.kind) {
    case Kind::kReported: report(tensor, event, {event.ranks.begin(), event.ranks.end()}, out); break;
    case Kind::kReleased: release(tensor, event, out); break;
    case Kind::kActivity:
      if (tensor.state != Tensor::State::kRunning) break;
      if (std::exchange(tensor.in_activity, true)) put_end(tensor, event, out);
      put_begin(tensor, event, event.activity, out);
      break;
    default: end(tensor, event, out);
  }
}

// A rank that is through with a tensor may report it again before rank 0 is through with it: that waits for end().
void Trace::report(Tensor& tensor, const TraceEvent& event, const std::set<int>& ranks, std::string& out) {
  if (tensor.state == Tensor::State::kIdle) {
    put_begin(tensor, event, "NEGOTIATE_" + in_capitals(op_type_name(event.op)), out);
    tensor.state = Tensor::State::kNegotiating;
  }
  for (const int rank : ranks) {
    if (!tensor.reported.insert(rank).second || tensor.state == Tensor::State::kRunning) continue;
    put({{"ph", "X"}, {"name", std::to_string(rank)}, {"ts", micros(event.when)}, {"dur", 0}, {"pid", tensor.pid}},
        out);
  }
}

void Trace::release(Tensor& tensor, const TraceEvent& event, std::string& out) {
  if (tensor.state == Tensor::State::kRunning) end(tensor, event, out);
  report(tensor, event, {}, out);
  put_end(tensor, event, out);
  put_begin(tensor, event, in_capitals(op_type_name(event.op)), out);
  tensor.state = Tensor::State::kRunning;
  tensor.reported.clear();
}

void Trace::end(Tensor& tensor, const TraceEvent& event, std::string& out) {
  const bool was_running = tensor.state == Tensor::State::kRunning;
  if (std::exchange(tensor.in_activity, false)) put_end(tensor, event, out);
  if (tensor.state != Tensor::State::kIdle) {
    Json last = {{"ph", "E"}, {"ts", micros(event.when)}, {"pid", tensor.pid}};
    if (!event.error.empty()) {
      last["args"] = {{"error", event.error}};
    } else if (was_running && event.kind == TraceEvent::Kind::kEnded) {
      last["args"] = {{"dtype", std::string(data_type_name(event.dtype))}, {"shape", to_string(event.shape)}};
    }
    put(last, out);
  }
  tensor.state = Tensor::State::kIdle;
  const std::set<int> already = std::exchange(tensor.reported, {});
  if (was_running && !already.empty()) report(tensor, event, already, out);
}

}  // namespace hvd::recorder
