#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "launcher/streams/output_router.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// The file of --events: whole lines, each written at once, after what the file has. What it does not take (a full disk)
// is said once and lost; each later line is tried. Owned by the JobDriver, loop-confined.
class EventFile {
 public:
  // `on_loss`: once, with the name of the file in the text.
  EventFile(OutputFile file, std::function<void(const std::string& text)> on_loss);

  // `line` ends in a newline.
  void write(std::string_view line);
  const std::string& name() const { return file_.name; }
  // That were not written.
  std::uint64_t lost_lines() const { return lost_lines_; }

 private:
  OutputFile file_;
  const std::function<void(const std::string&)> on_loss_;
  std::uint64_t lost_lines_ = 0;
};

}  // namespace hvd::launcher
