#include "launcher/process/line_prefixer.h"

#include <ctime>
#include <string_view>
#include <utility>

namespace hvd::launcher {

void LinePrefixer::begin_line(std::string& out) {
  if (!line_open_) out += prefix_();
  line_open_ = true;
  out += pending_;
  pending_.clear();
}

void LinePrefixer::feed(ByteSpan chunk, std::string& out) {
  std::string_view rest = as_text(chunk);
  if (!rest.empty() && std::exchange(skip_end_, false) && rest.front() == '\n') rest.remove_prefix(1);
  while (!rest.empty()) {
    if (std::exchange(after_cr_, false) && rest.front() == '\n') {
      out += '\n';
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t end = rest.find_first_of("\r\n");
    if (end == std::string_view::npos) break;
    begin_line(out);
    out.append(rest.substr(0, end + 1));
    line_open_ = false;
    after_cr_ = rest[end] == '\r';
    rest.remove_prefix(end + 1);
  }
  pending_.append(rest);
  if (line_open_ || pending_.size() > max_pending_) show_pending(out);
}

void LinePrefixer::show_pending(std::string& out) {
  if (!pending_.empty()) begin_line(out);
}

void LinePrefixer::interrupt(bool in_its_place) {
  skip_end_ = in_its_place && line_open_;
  line_open_ = false;
}

void LinePrefixer::finish(std::string& out) {
  show_pending(out);
  line_open_ = false;
  after_cr_ = false;
}

LinePrefixer::Prefix rank_prefix(int rank, bool is_stderr, bool with_time) {
  std::string text = "[" + std::to_string(rank) + (is_stderr ? "]<stderr>:" : "]<stdout>:");
  if (!with_time) return [text] { return text; };
  return [text] {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    char buffer[64];
    localtime_r(&now, &local);
    const std::size_t size = std::strftime(buffer, sizeof(buffer), "%a %b %e %H:%M:%S %Y", &local);
    return std::string(buffer, size) + text;
  };
}

}  // namespace hvd::launcher
