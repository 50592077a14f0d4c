#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "runtime/base/bytes.h"

namespace hvd::launcher {

// Turns one stream of bytes of one rank into lines with a prefix. A line ends at \n or \r (progress bars); \r\n is one
// end. A line comes out as soon as it is complete; the unterminated rest comes out at finish(), without a newline
// added. Bytes pass as they are, so UTF-8 that is split over chunks survives.
//
// Who shows the text may want a part of a line sooner (a prompt), and may have to end a line that another's text falls
// into: the rest of that line then gets the prefix again.
//
// Bounded: of a line that grows past `max_pending` bytes, what is there comes out (prefix first), and the rest of it
// follows as it arrives, without a second prefix; lines of other ranks may then fall in between.
//
// Pure; externally synchronised.
class LinePrefixer {
 public:
  static constexpr std::size_t kMaxPending = std::size_t{1024} * 1024;

  // Asked once for each line, when the line comes out.
  using Prefix = std::function<std::string()>;
  explicit LinePrefixer(Prefix prefix, std::size_t max_pending = kMaxPending)
      : prefix_(std::move(prefix)), max_pending_(max_pending) {}

  // Both append to `out` what is ready to be shown.
  void feed(ByteSpan chunk, std::string& out);
  void finish(std::string& out);
  // What is there of an unfinished line.
  void show_pending(std::string& out);
  bool has_pending() const { return !pending_.empty(); }
  // What has come out of an unfinished line was followed by an end that is not ours; `in_its_place`: the line's own
  // end, if nothing more comes before it, is not to come out as well.
  void interrupt(bool in_its_place);

 private:
  void begin_line(std::string& out);

  Prefix prefix_;
  std::size_t max_pending_;
  std::string pending_;     // of the current line, not shown yet
  bool line_open_ = false;  // the prefix of the current line has come out
  bool skip_end_ = false;   // a \n that comes now has come out already
  bool after_cr_ = false;   // the last byte was \r: a \n that follows belongs to it
};

// `[3]<stdout>:`, preceded by the local time as ctime(3) writes it when `with_time`.
LinePrefixer::Prefix rank_prefix(int rank, bool is_stderr, bool with_time);

}  // namespace hvd::launcher
