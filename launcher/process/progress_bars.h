#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace hvd::launcher {

// The lines at the bottom of a terminal that are drawn anew in place: the progress bar of each rank that has one, and
// our own line while the job starts. Whoever prints anything else takes them off the screen first, and puts them back
// after it. Pure: what is to be written comes out as text. Externally synchronised.
class ProgressBars {
 public:
  struct Size {
    std::size_t rows = 24;
    std::size_t columns = 80;
  };

  // Bars stand in the order of their keys; "" takes one away. True when that changes what is to be seen. `prefix` may
  // have colour; control characters in the text have no effect.
  bool set(int key, std::string_view prefix, std::string_view text);
  bool empty() const { return bars_.empty(); }

  // From the screen as draw() left it to one without bars, at the beginning of a line; "" when none are drawn.
  std::string erase();
  // Requires: none are drawn, at the beginning of a line. As many as fit, each cut at the right.
  std::string draw(Size size);
  // What is drawn now stays above: the cursor has moved on by itself.
  void leave_behind() { drawn_ = 0; }
  bool drawn() const { return drawn_ > 0; }

 private:
  struct Bar {
    std::string prefix;
    std::string text;
    bool operator==(const Bar&) const = default;
  };
  std::map<int, Bar> bars_;
  std::size_t drawn_ = 0;  // lines on the screen
};

// The colours in which a terminal shows the prefix of a rank's lines, and what ends them.
std::string_view colour_of_rank(int rank);
inline constexpr std::string_view kColourEnd = "\033[0m";

}  // namespace hvd::launcher
