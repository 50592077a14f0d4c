#include "launcher/process/line_prefixer.h"

#include <ctime>
#include <string_view>
#include <utility>

#include "launcher/process/progress_bars.h"

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
      if (in_bar_) {
        end_bar();
        begin_line(out);
        line_open_ = false;
      }
      out += '\n';
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t end = rest.find_first_of("\r\n");
    if (end == std::string_view::npos) break;
    after_cr_ = rest[end] == '\r';
    if (after_cr_ && bars_ == Bars::kLastState && !line_open_) {
      keep_state(rest.substr(0, end));
    } else {
      in_bar_ = false;
      begin_line(out);
      out.append(rest.substr(0, end + 1));
      line_open_ = false;
    }
    rest.remove_prefix(end + 1);
  }
  pending_.append(rest);
  if (pending_.size() > max_pending_) in_bar_ = false;
  if (line_open_ || pending_.size() > max_pending_) show_pending(out);
}

// A bar that begins with \r, as most do, keeps its state until the next is there.
void LinePrefixer::keep_state(std::string_view state) {
  if (!std::exchange(in_bar_, true)) bar_.clear();
  pending_.append(state);
  if (!pending_.empty()) bar_ = std::exchange(pending_, {});
}

// Its last state is a line like any other.
void LinePrefixer::end_bar() {
  if (pending_.empty()) pending_ = std::exchange(bar_, {});
  in_bar_ = false;
}

void LinePrefixer::show_pending(std::string& out) {
  if (!pending_.empty()) begin_line(out);
}

void LinePrefixer::interrupt(bool in_its_place) {
  skip_end_ = in_its_place && line_open_;
  line_open_ = false;
}

void LinePrefixer::finish(std::string& out) {
  if (in_bar_) end_bar();
  show_pending(out);
  line_open_ = false;
  after_cr_ = false;
}

LinePrefixer::Prefix rank_prefix(int rank, bool is_stderr, const TimeStamp& stamp, std::string_view colour) {
  std::string text = "[" + std::to_string(rank) + (is_stderr ? "]<stderr>:" : "]<stdout>:");
  if (!colour.empty()) text = std::string(colour) + text + std::string(kColourEnd);
  if (!stamp) return [text] { return text; };
  return [text, stamp] { return stamp() + text; };
}

std::string ctime_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  char buffer[64];
  localtime_r(&now, &local);
  return {buffer, std::strftime(buffer, sizeof(buffer), "%a %b %e %H:%M:%S %Y", &local)};
}

std::string iso_stamp() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm local = {};
  localtime_r(&now.tv_sec, &local);
  char time[32];
  char zone[8];
  std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &local);
  std::strftime(zone, sizeof(zone), "%z", &local);  // "+0100"
  const std::string millis = std::to_string(1000 + now.tv_nsec / 1'000'000).substr(1);
  return std::string(time) + "." + millis + std::string(zone, 3) + ":" + std::string(zone + 3, 2) + " ";
}

}  // namespace hvd::launcher
