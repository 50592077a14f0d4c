#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/plan/launch_config.h"
#include "launcher/process/line_prefixer.h"
#include "launcher/process/tail_buffer.h"
#include "launcher/streams/rank_name.h"
#include "launcher/streams/screen.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

struct OutputFile {
  // Writes the text, as a rule in one piece. Where it fails the rest is lost, and a line that is cut by that is ended
  // before what comes next.
  Status add(std::string_view text);

  Fd fd;
  std::string name;
  bool is_cut = false;  // its last line
  bool is_said_to_fail = false;
  std::uint64_t lost_bytes = 0;
};

// Opens <directory>/rank.<rank>/stdout and stderr, emptied, to be added to; the number has as many digits as that of
// the last of num_proc. New directories are for the user alone. What another user may have put there is refused: a
// folder or a file that is not the user's own, or a link.
Result<std::array<OutputFile, 2>> open_output_files(const std::string& directory, int rank, int num_proc);

// <directory>/summary.json, emptied, under the same conditions.
Result<OutputFile> open_summary_file(const std::string& directory);

// `path`, to be added to after what it has; made where it is not there, in a folder that is. Under the same conditions.
Result<OutputFile> open_events_file(const std::string& path);

// Where the output of all slots goes: lines with the prefix of their rank to our stdout and stderr, and the same to a
// file per rank and stream when asked for. Our own messages go through it too. Lines are never torn: where stdout and
// stderr are one file there is one writer, and what falls into an unfinished line begins a new one. Owned by the
// JobDriver, loop-confined.
class OutputRouter {
 public:
  static constexpr std::size_t kHighWater =
      std::size_t{4} * 1024 * 1024;        // bytes not yet taken by our stdout or stderr
  static constexpr Millis kPromptAge{50};  // an unfinished line is shown when it is between once and twice as old

  struct Options {
    std::map<int, RankName> ranks;  // of each slot: the prefix of its lines, and the name of its files
    OutputConfig look;
    bool prompts = false;  // unfinished lines are shown also where stdout or stderr is no terminal
  };
  struct Callbacks {
    std::function<void()> on_progress;      // congested() and flushed() may have changed
    std::function<void(Status)> on_broken;  // nobody reads our stdout or stderr any more
  };

  OutputRouter(MainLoop& loop, const Options& options, const Callbacks& callbacks);

  // Makes <directory>/rank.<rank>/stdout and stderr for every rank, also for those that set_rank() brings; new
  // directories are for the user alone.
  Status open_files(const std::string& directory, int num_proc);

  // The slot is there from now on, or has a process of another name: its lines have that prefix, and go to that rank's
  // files, after what these have. If they cannot be opened, a message says so.
  void set_rank(int slot, const RankName& name);
  void output(int slot, bool is_stderr, ByteSpan bytes);
  void output_end(int slot, bool is_stderr);
  void end_all();
  // "horovodrun: <text>" on stderr; further lines of the text as they are.
  void message(std::string_view text);
  // Our own line among the progress bars of a terminal; "" takes it away. Nothing where stderr is none.
  void status(std::string_view text);
  bool has_terminal() { return screen_of(true).is_terminal(); }
  // The user has ended a line at the terminal, or has had it for something else.
  void line_was_typed();
  // From now on what a reader does not take is dropped above the high-water mark: nothing is held up for its sake.
  void stop_waiting_for_readers() { discards_ = true; }

  bool congested() const { return !discards_ && over_high_water(); }
  bool flushed() const { return stdout_.console().queued() == 0 && stderr_.console().queued() == 0; }
  // What files on a full disk have not taken.
  std::uint64_t lost_bytes() const;
  std::vector<std::string> last_stderr_lines(int slot, std::size_t max_lines) const;
  // Lines that went to our stdout and stderr after the slot's last on stderr; very many when that is not shown.
  std::size_t lines_after_stderr(int slot) const;

 private:
  struct Stream {
    LinePrefixer::Prefix prefix;
    LinePrefixer prefixer;
    std::unique_ptr<LinePrefixer> file_prefixer = {};  // in the file nobody falls into a line
    OutputFile* file = nullptr;                        // of its rank, in files_of_ranks_
    std::optional<TimePoint> pending_since = {};
  };
  struct SlotStreams {
    RankName name;
    bool is_shown;
    bool is_raw;                    // what it prints is shown at once, as it is
    std::array<Stream, 2> streams;  // stdout, stderr
    TailBuffer stderr_tail;
    std::size_t last_line = 0;  // lines_ after its last output on stderr
  };

  Console::Callbacks screen_callbacks(const char* name, const Callbacks& callbacks);
  bool over_high_water() const {
    return stdout_.console().queued() > kHighWater || stderr_.console().queued() > kHighWater;
  }
  Status open_files_of(SlotStreams& slot);
  bool is_raw(int rank) const { return options_.look.raw_rank == rank; }
  Stream make_stream(const RankName& name, bool is_stderr);
  SlotStreams streams_of_rank(const RankName& name);
  LinePrefixer::Bars file_bars() const {
    return options_.look.last_states ? LinePrefixer::Bars::kLastState : LinePrefixer::Bars::kAllStates;
  }
  TimeStamp stamp() const;
  Stream* stream_of(int slot, bool is_stderr);
  Screen& screen_of(bool is_stderr) { return is_stderr && !one_screen_ ? stderr_ : stdout_; }
  bool shows_prompts(bool is_stderr) { return options_.prompts || screen_of(is_stderr).is_terminal(); }
  void show(Stream& stream, bool is_stderr, const std::string& text);
  void show_bar(const SlotStreams& slot, bool is_stderr);
  void show_prompts();
  void write_file(Stream& stream, const std::string& text);

  Options options_;
  const TimePoint start_ = SteadyClock::now();
  bool one_screen_;  // stdout and stderr are the same
  bool discards_ = false;
  Screen stdout_;
  Screen stderr_;
  std::size_t lines_ = 0;  // of output that was written so far
  std::map<int, SlotStreams> slots_;
  std::optional<std::pair<std::string, int>> files_;         // see open_files()
  std::map<int, std::array<OutputFile, 2>> files_of_ranks_;  // slots come and go, and share what is their rank's
  loop::Timer prompt_timer_;
};

}  // namespace hvd::launcher
