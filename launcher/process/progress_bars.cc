#include "launcher/process/progress_bars.h"

#include <algorithm>
#include <array>

namespace hvd::launcher {
namespace {

constexpr std::string_view kEraseToEnd = "\033[J";  // of the screen
constexpr std::string_view kUpToStart = "\033[F";   // to the beginning of the line above

// Where the escape sequence that begins at `at` ends: a bar that has colours of its own is shown without them.
std::size_t after_escape(std::string_view text, std::size_t at) {
  if (++at == text.size() || text[at] != '[') return std::min(at + 1, text.size());
  do ++at;
  while (at < text.size() && (text[at] < '@' || text[at] > '~'));
  return std::min(at + 1, text.size());
}

// Its first `columns` letters, as far as every letter of UTF-8 has one column, and none that control the terminal.
std::string shown_part(std::string_view text, std::size_t columns) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == 0x1b) {
      at = after_escape(text, at);
      continue;
    }
    const bool begins_letter = (byte & 0xc0) != 0x80;
    if (begins_letter && columns-- == 0) break;
    shown += byte < 0x20 || byte == 0x7f ? ' ' : text[at];
    ++at;
  }
  return shown;
}

// How many columns a prefix takes.
std::size_t width_of(std::string_view prefix) {
  const std::string plain = shown_part(prefix, prefix.size());
  return static_cast<std::size_t>(
      std::count_if(plain.begin(), plain.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

bool ProgressBars::set(int key, std::string_view prefix, std::string_view text) {
  if (text.empty()) return bars_.erase(key) > 0;
  Bar bar{std::string(prefix), std::string(text)};
  Bar& old = bars_[key];
  if (old == bar) return false;
  old = std::move(bar);
  return true;
}

std::string ProgressBars::erase() {
  if (drawn_ == 0) return "";
  std::string text = "\r";  // the cursor is at the end of the last bar
  for (; drawn_ > 1; --drawn_) text += kUpToStart;
  drawn_ = 0;
  return text.append(kEraseToEnd);
}

std::string ProgressBars::draw(Size size) {
  // Two lines for the rest; the last column stays free, or the terminal would begin a new line.
  const std::size_t room = std::max<std::size_t>(size.rows, 3) - 2;
  const std::size_t columns = std::max<std::size_t>(size.columns, 2) - 1;
  std::string text;
  for (const auto& [key, bar] : bars_) {
    if (drawn_ == room) break;
    const std::size_t width = width_of(bar.prefix);
    if (drawn_++ > 0) text += "\n";
    if (width < columns) text += bar.prefix;
    text += shown_part(bar.text, width < columns ? columns - width : columns);
  }
  return text;
}

std::string_view colour_of_rank(int rank) {
  constexpr auto kColours = std::to_array<std::string_view>(
      {"\033[36m", "\033[32m", "\033[33m", "\033[35m", "\033[34m", "\033[96m", "\033[92m", "\033[93m"});
  return kColours[static_cast<std::size_t>(std::max(rank, 0)) % kColours.size()];
}

}  // namespace hvd::launcher
