#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/bytes.h"

namespace hvd::launcher {

// Turns one stream of bytes of one rank into lines with a prefix. A line ends at \n or \r (progress bars); \r\n is one
// end. With Bars::kLastState what ends with \r is a state of a bar: it does not come out, but for the last before \n. A
// line comes out as soon as it is complete; the unterminated rest comes out at finish(), without a newline added. Bytes
// pass as they are, so UTF-8 that is split over chunks survives.
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

  enum class Bars { kAllStates, kLastState };

  // Asked once for each line, when the line comes out.
  using Prefix = std::function<std::string()>;
  explicit LinePrefixer(Prefix prefix, std::size_t max_pending = kMaxPending, Bars bars = Bars::kAllStates)
      : prefix_(std::move(prefix)), max_pending_(max_pending), bars_(bars) {}

  // Both append to `out` what is ready to be shown.
  void feed(ByteSpan chunk, std::string& out);
  void finish(std::string& out);
  // What is there of an unfinished line.
  void show_pending(std::string& out);
  bool has_pending() const { return !pending_.empty() && !in_bar_; }
  // The present state of the bar that has begun and not ended, which is only kept; else "".
  std::string_view bar() const {
    if (!in_bar_) return {};
    return pending_.empty() ? bar_ : pending_;
  }
  // What has come out of an unfinished line was followed by an end that is not ours; `in_its_place`: the line's own
  // end, if nothing more comes before it, is not to come out as well.
  void interrupt(bool in_its_place);

 private:
  void begin_line(std::string& out);
  void keep_state(std::string_view state);
  void end_bar();

  Prefix prefix_;
  std::size_t max_pending_;
  Bars bars_;
  bool in_bar_ = false;     // the last end of a line was a bar's
  std::string bar_;         // its state, unless pending_ has a newer one
  std::string pending_;     // of the current line, not shown yet
  bool line_open_ = false;  // the prefix of the current line has come out
  bool skip_end_ = false;   // a \n that comes now has come out already
  bool after_cr_ = false;   // the last byte was \r: a \n that follows belongs to it
};

// `[3]<stdout>:`, in that colour ("": none), preceded by what the time stamp writes, if there is one.
using TimeStamp = std::function<std::string()>;
LinePrefixer::Prefix rank_prefix(int rank, bool is_stderr, const TimeStamp& stamp = nullptr,
                                 std::string_view colour = "");
// The local time as ctime(3) writes it: "Mon Jan 20 12:00:01 2020".
std::string ctime_stamp();
// "2020-01-20T12:00:01.123+01:00 ".
std::string iso_stamp();

}  // namespace hvd::launcher
