#include "launcher/process/tail_buffer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/base/letters.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kLineEnds = "\r\n";
constexpr std::string_view kRestIsLeftOut = "...";

}  // namespace

void TailBuffer::add(ByteSpan chunk) {
  std::string_view rest = as_text(chunk);
  while (!rest.empty()) {
    const std::size_t size = std::min(rest.find_first_of(kLineEnds), rest.size());
    add_to_line(rest.substr(0, size));
    if (size < rest.size() && std::exchange(line_size_, 0) > 0) bytes_ += rest[size];
    rest.remove_prefix(std::min(size + 1, rest.size()));
  }
  if (bytes_.size() > kMaxBytes) {
    bytes_.erase(0, bytes_.size() - kMaxBytes);
    cut_ = true;
  }
}

void TailBuffer::add_to_line(std::string_view text) {
  const std::size_t room = kMaxLine - std::min(line_size_, kMaxLine);
  bytes_.append(text.substr(0, room));
  if (line_size_ <= kMaxLine && text.size() > room) bytes_ += kRestIsLeftOut;
  line_size_ += text.size();
}

std::vector<std::string> TailBuffer::last_lines(std::size_t max_lines) const {
  std::string_view rest = bytes_;
  if (cut_) {
    const std::size_t first_end = rest.find_first_of(kLineEnds);
    if (first_end != std::string_view::npos) rest.remove_prefix(first_end + 1);
  }
  std::vector<std::string> lines;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find_first_of(kLineEnds), rest.size());
    std::string line = without_controls(rest.substr(0, end), "\t");
    if (!line.empty()) lines.push_back(std::move(line));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (lines.size() > max_lines) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(max_lines));
  return lines;
}

}  // namespace hvd::launcher
