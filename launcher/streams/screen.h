#pragma once

#include <string>
#include <string_view>

#include "launcher/process/console.h"
#include "launcher/process/line_prefixer.h"
#include "launcher/process/progress_bars.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Our stdout or stderr, or both where they are one: text, and on a terminal the progress bars below it. Owned by the
// OutputRouter, loop-confined.
class Screen {
 public:
  static constexpr Millis kRedraw{50};  // bars are drawn anew so often at most

  Screen(MainLoop& loop, int fd, Console::Callbacks callbacks);

  bool is_terminal() const { return is_terminal_; }
  bool at_line_start() const { return at_line_start_; }
  const Console& console() const { return console_; }

  // Above the bars. Requires: not empty.
  void write(std::string_view text);
  // The cursor has begun a new line by itself: somebody has typed, or another program has had the terminal.
  void line_was_typed();
  // See ProgressBars. Nothing is shown where there is no terminal.
  void set_bar(int key, std::string_view prefix, std::string_view text);

  LinePrefixer* open = nullptr;  // whose unfinished line ends the text; the owner's to set

 private:
  void redraw();
  ProgressBars::Size size() const;

  Console console_;
  const int fd_;
  const bool is_terminal_;
  bool at_line_start_ = true;
  ProgressBars bars_;
  loop::Timer timer_;
};

}  // namespace hvd::launcher
