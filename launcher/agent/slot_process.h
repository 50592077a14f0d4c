#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "launcher/environment/environment.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/child.h"
#include "launcher/process/main_loop.h"
#include "launcher/protocol/messages.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// What happens to a process, in order: started or not started; output; ended. The end of a stream may come after the
// process' own, when something that it left behind still holds it.
class ProcessEvents {
 public:
  virtual ~ProcessEvents() = default;
  virtual void process_started(Incarnation process, int pid) = 0;
  virtual void process_not_started(Incarnation process, int code, std::string reason) = 0;
  virtual void process_output(Incarnation process, OutputStream stream, ByteSpan bytes) = 0;
  virtual void process_output_end(Incarnation process, OutputStream stream) = 0;
  // See FailingMessage.
  virtual void process_failing(Incarnation process, bool is_leaving) = 0;
  virtual void process_stalled(Incarnation process, std::int32_t rank) = 0;                // see StalledMessage
  virtual void process_worked(Incarnation process, const rendezvous::RankWork& work) = 0;  // see WorkedMessage
  // Somebody else than us has stopped it, or let it go on.
  virtual void process_stopped(Incarnation process, bool is_stopped) = 0;
  // It got SIGTERM, not from us. Whether it may leave in its own time.
  virtual bool process_draining(Incarnation process) = 0;
  virtual void process_ended(Incarnation process, ExitStatus status) = 0;
  // So much of its input has been written to it, or will never be.
  virtual void process_took_input(Incarnation process, std::size_t size) = 0;
};

struct ProcessCommand {
  std::vector<std::string> argv;
  Variables env;
  std::string cwd;
  Cpus cpus = {};                    // that it is bound to; none: all
  std::size_t descriptor_limit = 0;  // of the agent, before it raised its own
  std::uint64_t ignored_signals = 0;
  bool has_input = false;     // else its stdin is /dev/null
  bool gives_result = false;  // see StartMessage
};

// One process of a slot, which leads a session and process group of its own, and the pipes that carry its output and
// its input. Owned by Slots; loop-confined. It decides nothing.
class SlotProcess {
 public:
  SlotProcess(MainLoop& loop, Incarnation self, ProcessEvents& events);

  void start(const ProcessCommand& command);
  std::uint32_t number() const { return self_.number; }
  int pid() const { return child_ ? child_->pid() : -1; }
  bool running() const { return child_ && child_->running(); }
  // Its end, or why it could not start, has been reported.
  bool over() const { return failed_to_start_ || end_reported_; }
  void kill(int signal);
  void kill_group(int signal);
  // For its stdin; without bytes: the end. Its sender keeps what is under way within bounds.
  void write_input(Bytes bytes);
  void pause_output(bool paused);
  bool output_ended() const;
  void close_output();
  // Another process takes its slot. What it still prints is reported for as long as it takes to arrive; what
  // holds its output open after that is not waited for.
  void retire();

 private:
  Status try_start(const ProcessCommand& command);
  Status open_stream(Fd read_end, OutputStream stream);
  Status open_input(Fd write_end);
  void input_moved();
  void exec_finished(const std::string& program);
  void maybe_report_end(bool at_last);
  void end_output();

  MainLoop& loop_;
  const Incarnation self_;
  ProcessEvents& events_;
  std::unique_ptr<Child> child_;
  std::array<std::unique_ptr<PipeReader>, 3> readers_;  // by OutputStream; none before the start, or without a result
  std::unique_ptr<PipeWriter> stdin_;
  std::size_t input_pending_ = 0;  // given to stdin_ and not reported as taken
  bool input_ended_ = false;
  std::unique_ptr<PipeReader> exec_pipe_;
  Bytes exec_error_;  // errno of the exec that failed
  bool exec_done_ = false;
  bool failed_to_start_ = false;
  bool end_reported_ = false;
  std::unique_ptr<ExitStatus> status_;
  bool output_paused_ = false;
  loop::Timer output_grace_;  // how long its end waits for the output that was written before it
  loop::Timer retirement_;
};

inline constexpr const char* kExecRankFlag = "--exec-rank";

// Where a rank's process begins: the agent starts this program again, as `horovodrun --exec-rank <agent pid>
// <descriptor limit> <ignored signals> <processors> -- <command>`, because libuv has no hook between fork and exec. It
// ties the rank's life to the agent's (PR_SET_PDEATHSIG), gives the command the signal dispositions and limits of a
// fresh process, and becomes the command. Descriptor 3 is where it writes errno when that fails.
std::vector<std::string> exec_rank_argv(int agent_pid, std::size_t descriptor_limit, std::uint64_t ignored_signals,
                                        const Cpus& cpus, const std::vector<std::string>& command);
[[noreturn]] void exec_rank_main(int argc, char** argv);

}  // namespace hvd::launcher
