#include "launcher/process/tail_buffer.h"

#include <algorithm>
#include <string_view>

#include "runtime/base/letters.h"

namespace hvd::launcher {

void TailBuffer::add(ByteSpan chunk) {
  bytes_.append(as_text(chunk));
  if (bytes_.size() > kMaxBytes) {
    bytes_.erase(0, bytes_.size() - kMaxBytes);
    cut_ = true;
  }
}

std::vector<std::string> TailBuffer::last_lines(std::size_t max_lines) const {
  std::string_view rest = bytes_;
  if (cut_) {
    const std::size_t first_end = rest.find_first_of("\r\n");
    if (first_end != std::string_view::npos) rest.remove_prefix(first_end + 1);
  }
  std::vector<std::string> lines;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of("\r\n"), rest.size());
    std::string line = without_controls(rest.substr(0, end), "\t");
    if (!line.empty()) lines.push_back(std::move(line));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (lines.size() > max_lines) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(max_lines));
  return lines;
}

}  // namespace hvd::launcher
