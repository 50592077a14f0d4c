#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/bytes.h"

namespace hvd::launcher {

// Keeps the end of a stream: at most kMaxBytes of it, and of a line its beginning, at most kMaxLine: so the last line
// is there, however long it is, and what it begins with. Pure; externally synchronised.
class TailBuffer {
 public:
  static constexpr std::size_t kMaxBytes = 4096;
  static constexpr std::size_t kMaxLine = 2048;

  void add(ByteSpan chunk);
  // The last complete or unterminated lines, oldest first, without their ends and without empty ones; control
  // characters other than tab are replaced, since the text goes into our own messages.
  std::vector<std::string> last_lines(std::size_t max_lines) const;

 private:
  void add_to_line(std::string_view text);

  std::string bytes_;
  std::size_t line_size_ = 0;  // of the line that has not ended, with what is left out
  bool cut_ = false;           // the first line has lost its beginning
};

}  // namespace hvd::launcher
