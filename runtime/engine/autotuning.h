#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/autotune/autotuner.h"
#include "runtime/base/fd.h"
#include "runtime/negotiation/worker.h"

namespace hvd::engine {

struct AutotuningOptions {
  autotune::AutotuneOptions tuner;
  std::string log;          // CSV file; "": none
  std::string log_columns;  // what stands before the batching in each of its lines, with a comma behind: "0,0,0,1,"
};

// Tunes batching for the whole job while it runs: rank 0 alone watches what is decided, and what it concludes is in its
// next decisions, so no message is needed. Writes the log of it. Part of the engine and confined to its thread; lives
// on rank 0.
class Autotuning {
 public:
  using Apply = std::function<void(const autotune::Batching&)>;

  // `apply` puts a batching in force; `options.tuner.search.start` already is.
  Autotuning(const AutotuningOptions& options, Apply apply);

  // A decision lets these run.
  void watch(const std::vector<negotiation::OwnResponse>& ready, TimePoint now);
  // The session is shut down: a user who asked for tuning is told that it had not ended, and how far it was.
  void shut_down() const;

 private:
  void open_log();
  void write(const std::string& text);
  void write_line(const autotune::Score& score);
  void go_on();
  void note_end(const autotune::Score& start, const autotune::Score& best) const;

  std::optional<autotune::Autotuner> tuner_;  // until it is over
  autotune::Batching in_force_;
  int scores_ = 0;
  const std::string log_path_;
  const std::string log_columns_;
  const Apply apply_;
  Fd log_;
};

}  // namespace hvd::engine
