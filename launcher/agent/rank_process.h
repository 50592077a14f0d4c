#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/environment/environment.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/child.h"
#include "launcher/process/main_loop.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// What happens to a rank, in order: started or not started; output; exited. The end of a stream may come after the
// exit, when a process that the rank left behind still holds it.
class RankEvents {
 public:
  virtual ~RankEvents() = default;
  virtual void rank_started(int rank, int pid) = 0;
  virtual void rank_not_started(int rank, int code, std::string reason) = 0;
  virtual void rank_output(int rank, bool is_stderr, ByteSpan bytes) = 0;
  virtual void rank_output_end(int rank, bool is_stderr) = 0;
  // See RankFailingMessage.
  virtual void rank_failing(int rank, bool is_leaving) = 0;
  virtual void rank_exited(int rank, ExitStatus status) = 0;
  // So much of its input has been written to it, or will never be.
  virtual void rank_took_input(int rank, std::size_t size) = 0;
};

struct RankCommand {
  std::vector<std::string> argv;
  Variables env;
  std::string cwd;
  std::size_t descriptor_limit = 0;  // of the agent, before it raised its own
  std::uint64_t ignored_signals = 0;
  bool has_input = false;  // else its stdin is /dev/null
};

// One rank of this agent: its process, which leads a session and process group of its own, and the pipes that carry its
// output and its input. Owned by the Agent for the whole job; loop-confined. It decides nothing.
class RankProcess {
 public:
  RankProcess(MainLoop& loop, int rank, RankEvents& events);

  void start(const RankCommand& command);
  int rank() const { return rank_; }
  bool running() const { return child_ && child_->running(); }
  int pid() const { return child_ ? child_->pid() : -1; }
  void kill(int signal);
  void kill_group(int signal);
  // For its stdin; without bytes: the end. Its sender keeps what is under way within bounds.
  void write_input(Bytes bytes);
  void pause_output();
  void resume_output();
  bool output_ended() const;
  void close_output();

 private:
  Status try_start(const RankCommand& command);
  Status open_stream(Fd read_end, bool is_stderr);
  Status open_input(Fd write_end);
  void input_moved();
  void exec_finished();
  void maybe_report_exit(bool at_last);

  MainLoop& loop_;
  int rank_;
  RankEvents& events_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<PipeReader> stdout_;
  std::unique_ptr<PipeReader> stderr_;
  std::unique_ptr<PipeWriter> stdin_;
  std::size_t input_pending_ = 0;  // given to stdin_ and not reported as taken
  bool input_ended_ = false;
  std::unique_ptr<PipeReader> exec_pipe_;
  Bytes exec_error_;  // errno of the exec that failed
  bool exec_done_ = false;
  bool failed_to_start_ = false;
  bool exit_reported_ = false;
  std::unique_ptr<ExitStatus> status_;
  loop::Timer output_grace_;  // how long an exit waits for the output that was written before it
};

}  // namespace hvd::launcher
