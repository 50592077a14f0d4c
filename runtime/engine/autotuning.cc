#include "runtime/engine/autotuning.h"

#include <iomanip>
#include <numeric>
#include <sstream>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/output_file.h"

namespace hvd::engine {

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// The columns that programs which read Horovod's file expect.
constexpr const char* kHeader =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score";

double in_milliseconds(std::chrono::microseconds delay) {
  return std::chrono::duration<double, std::milli>(delay).count();
}

double in_mib(std::uint64_t bytes) { return static_cast<double>(bytes) / kMiB; }

bool moves_data(const wire::Response& response) {
  return !response.is_error() && response.op != OpType::kBarrier && response.op != OpType::kJoin;
}

// Of an allgather: what all ranks have, as it may be another one than the first that has something.
std::uint64_t bytes_of(const wire::Response& response) {
  Shape shape = response.shape;
  const auto& rows = response.first_dims;
  if (!rows.empty() && !shape.empty()) shape.front() = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  return static_cast<std::uint64_t>(num_elements(shape)) * element_size(response.dtype);
}

std::string key_of(const wire::Response& response) {
  return std::to_string(response.process_set) + ' ' + std::to_string(static_cast<int>(response.op)) + ' ' +
         response.name;
}

// As a user would set it for the next job.
std::string in_words(const autotune::Batching& batching) {
  std::ostringstream text;
  text << "HOROVOD_FUSION_THRESHOLD=" << batching.threshold
       << " HOROVOD_CYCLE_TIME=" << in_milliseconds(batching.delay);
  return text.str();
}

}  // namespace

Autotuning::Autotuning(const AutotuningOptions& options, Apply apply)
    : tuner_(options.tuner),
      in_force_(options.tuner.search.start),
      log_path_(options.log),
      log_columns_(options.log_columns),
      apply_(std::move(apply)) {
  if (!log_path_.empty()) open_log();
  if (!tuner_->is_over()) return;
  tuner_.reset();
  HVD_LOG(kWarning,
          "HOROVOD_AUTOTUNE: there is nothing to tune: HOROVOD_FUSION_THRESHOLD and HOROVOD_CYCLE_TIME are "
          "set, or HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES is 0");
}

void Autotuning::open_log() {
  Result<Fd> opened = open_emptied(log_path_);
  if (!opened.is_ok()) {
    HVD_LOG(kError, "HOROVOD_AUTOTUNE_LOG: ", opened.status().message(), "; there is no log");
    return;
  }
  log_ = std::move(opened).value();
  write(std::string(kHeader) + '\n');
}

void Autotuning::write(const std::string& text) {
  const Status written = write_all(log_.get(), text.data(), text.size());
  if (written.is_ok()) return;
  HVD_LOG(kError, "HOROVOD_AUTOTUNE_LOG: cannot write ", log_path_, ": ", written.message(), "; the log ends here");
  log_.reset();
}

void Autotuning::write_line(const autotune::Score& score) {
  if (!log_.valid()) return;
  std::ostringstream line;
  line << log_columns_ << in_milliseconds(score.batching.delay) << ',' << in_mib(score.batching.threshold) << ','
       << score.bytes_per_microsecond << '\n';
  write(line.str());
}

void Autotuning::watch(const std::vector<negotiation::OwnResponse>& ready, TimePoint now) {
  for (const negotiation::OwnResponse& each : ready) {
    if (!tuner_) return;
    const wire::Response& response = *each.response;
    if (moves_data(response) && tuner_->add(key_of(response), bytes_of(response), now)) go_on();
  }
}

void Autotuning::shut_down() const {
  if (!tuner_) return;
  HVD_LOG(kWarning, "The session ends before autotuning has (scores so far: ", std::to_string(scores_),
          "). By default it takes about 1100 steps; tensors that callers exchange in shared memory do not count");
}

void Autotuning::go_on() {
  for (const autotune::Score& score : tuner_->take_scores()) {
    ++scores_;
    write_line(score);
  }
  if (tuner_->current() != in_force_) {
    in_force_ = tuner_->current();
    apply_(in_force_);
  }
  if (!tuner_->is_over()) return;
  const auto [start, best] = tuner_->last_scores();
  write_line(best.batching == in_force_ ? best : start);
  log_.reset();
  note_end(start, best);
  tuner_.reset();
}

// A warning, as that is what is printed unless somebody asks for more: who has tuned wants to know.
void Autotuning::note_end(const autotune::Score& start, const autotune::Score& best) const {
  if (best.batching != in_force_ || start.batching == in_force_) {
    HVD_LOG(kWarning, "Autotuning has ended: nothing was faster than ", in_words(start.batching));
    return;
  }
  std::ostringstream gain;
  gain << std::fixed << std::setprecision(1) << (best.bytes_per_microsecond / start.bytes_per_microsecond - 1) * 100;
  HVD_LOG(kWarning, "Autotuning has ended with ", in_words(in_force_), ", in turns with ", in_words(start.batching),
          " ", gain.str(), " % more bytes in a time");
}

}  // namespace hvd::engine
