#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/console.h"
#include "launcher/process/line_prefixer.h"
#include "launcher/process/tail_buffer.h"
#include "runtime/base/fd.h"

namespace hvd::launcher {

// Where the output of all ranks goes: lines with their prefix to our stdout and stderr, and the same to a file per rank
// and stream when asked for. Our own messages go through it too, so that they do not fall into a line. Owned by the
// JobDriver, loop-confined.
class OutputRouter {
 public:
  static constexpr std::size_t kHighWater = std::size_t{4} * 1024 * 1024;  // bytes not yet taken by our stdout or stderr

  struct Options {
    int num_proc = 1;
    bool with_time = false;
  };
  struct Callbacks {
    std::function<void()> on_progress;       // congested() and flushed() may have changed
    std::function<void(Status)> on_broken;   // nobody reads our stdout or stderr any more
  };

  OutputRouter(MainLoop& loop, const Options& options, const Callbacks& callbacks);

  // Makes <directory>/rank.<rank>/stdout and stderr for every rank; new directories are for the user alone.
  Status open_files(const std::string& directory);

  void output(int rank, bool is_stderr, ByteSpan bytes);
  void output_end(int rank, bool is_stderr);
  void end_all();
  // "horovodrun: <text>" on stderr; further lines of the text as they are.
  void message(std::string_view text);

  bool congested() const { return stdout_.queued() > kHighWater || stderr_.queued() > kHighWater; }
  bool flushed() const { return stdout_.queued() == 0 && stderr_.queued() == 0; }
  std::vector<std::string> last_stderr_lines(int rank, std::size_t max_lines) const;

 private:
  struct Stream {
    LinePrefixer prefixer;
    Fd file;
    std::string file_name;
  };
  struct RankStreams {
    std::array<Stream, 2> streams;  // stdout, stderr
    TailBuffer stderr_tail;
  };

  Stream* stream_of(int rank, bool is_stderr);
  void emit(Stream& stream, bool is_stderr, const std::string& text);

  bool stderr_line_open_ = false;  // the last byte was not the end of a line
  Console stdout_;
  Console stderr_;
  std::vector<RankStreams> ranks_;
};

}  // namespace hvd::launcher
