#include "launcher/streams/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

namespace hvd::launcher {

Screen::Screen(MainLoop& loop, int fd, Console::Callbacks callbacks)
    : console_(loop, fd, std::move(callbacks)),
      fd_(fd),
      is_terminal_(::isatty(fd) == 1),
      timer_(loop.get(), [this] { redraw(); }) {}

void Screen::write(std::string_view text) {
  std::string all = bars_.erase();
  all += text;
  at_line_start_ = text.back() == '\n';
  // A terminal that is behind is not given more to draw.
  const bool draws = at_line_start_ && !bars_.empty();
  if (draws && console_.queued() == 0) {
    all += bars_.draw(size());
  } else if (draws && !timer_.active()) {
    timer_.start(kRedraw);
  }
  console_.write(all);
}

void Screen::line_was_typed() {
  bars_.leave_behind();
  at_line_start_ = true;
  if (!bars_.empty() && !timer_.active()) timer_.start(kRedraw);
}

void Screen::set_bar(int key, std::string_view prefix, std::string_view text) {
  if (is_terminal_ && bars_.set(key, prefix, text) && !timer_.active()) timer_.start(kRedraw);
}

void Screen::redraw() {
  if (!at_line_start_ && !bars_.drawn()) return;  // once the line has ended
  if (console_.queued() > 0) return timer_.start(kRedraw);
  std::string text = bars_.erase();
  text += bars_.draw(size());
  console_.write(text);
}

ProgressBars::Size Screen::size() const {
  winsize window = {};
  if (::ioctl(fd_, TIOCGWINSZ, &window) != 0 || window.ws_row == 0 || window.ws_col == 0) return {};
  return {.rows = window.ws_row, .columns = window.ws_col};
}

}  // namespace hvd::launcher
