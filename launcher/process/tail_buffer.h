#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/bytes.h"

namespace hvd::launcher {

// Keeps the end of a stream: at most kMaxBytes of it. Pure; externally synchronised.
class TailBuffer {
 public:
  static constexpr std::size_t kMaxBytes = 4096;

  void add(ByteSpan chunk);
  // The last complete or unterminated lines, oldest first, without their ends and without empty ones; control
  // characters other than tab are replaced, since the text goes into our own messages.
  std::vector<std::string> last_lines(std::size_t max_lines) const;

 private:
  std::string bytes_;
  bool cut_ = false;  // the first line has lost its beginning
};

}  // namespace hvd::launcher
