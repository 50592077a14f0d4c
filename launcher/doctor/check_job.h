#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/byte_pipe.h"
#include "launcher/process/child.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/tail_buffer.h"
#include "runtime/base/deadline.h"

namespace hvd::launcher {

// A job that the doctor runs: this program again, in a session of its own. What it prints is kept. Owned by the doctor,
// loop-confined.
class CheckJob {
 public:
  // `most_output`: bytes of stdout that are kept; that there were more is an error. `on_over`: once, when it has ended
  // and all that it said is here.
  CheckJob(MainLoop& loop, std::size_t most_output, std::function<void()> on_over);

  // `arguments`: of horovodrun.
  Status start(const std::vector<std::string>& arguments);
  // It could not begin, or somebody knows better why it ended.
  void fail(const std::string& why) { problem_ = why; }
  // Ends it, which may not have begun, by this signal, for the user's sake.
  void end(int signal, int user_signal);

  const std::string& output() const { return output_; }
  double arrived() const { return arrived_; }  // when its first output came, in seconds since 1970
  double seconds() const { return seconds_; }  // from start to end
  // What went wrong, and the last lines of stderr.
  std::string error() const;

 private:
  Result<std::unique_ptr<PipeReader>> read(Fd fd, std::function<void(ByteSpan)> on_data);
  void keep(std::string_view text);
  void maybe_over();

  MainLoop& loop_;
  const std::size_t most_output_;
  const std::function<void()> on_over_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<PipeReader> out_;
  std::unique_ptr<PipeReader> err_;
  std::string output_;
  TailBuffer errors_;
  std::string problem_;
  bool exited_ = false;
  bool told_ = false;
  bool was_killed_ = false;
  TimePoint started_;
  double arrived_ = 0;
  double seconds_ = 0;
};

}  // namespace hvd::launcher
