#include "launcher/process/progress_bars.h"

#include <algorithm>
#include <array>

#include "runtime/base/letters.h"

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

// Columns that terminals give it, by Unicode's blocks: our locale need not be theirs, so wcwidth() does not know.
std::size_t columns_of(char32_t code) {
  struct Block {
    char32_t first;
    char32_t last;
    std::size_t columns;
  };
  constexpr auto kBlocks = std::to_array<Block>({
      {0x0300, 0x036f, 0},    // accents of the letter before
      {0x1100, 0x115f, 2},    // Hangul's parts
      {0x200b, 0x200f, 0},    // marks
      {0x2e80, 0x303e, 2},    // Chinese and Japanese
      {0x3041, 0xa4cf, 2},    // the same
      {0xac00, 0xd7a3, 2},    // Hangul
      {0xf900, 0xfaff, 2},    // Chinese
      {0xfe00, 0xfe0f, 0},    // variants of the letter before
      {0xfe30, 0xfe6f, 2},    // forms for columns
      {0xff00, 0xff60, 2},    // wide ASCII
      {0xffe0, 0xffe6, 2},    // and its currencies
      {0x1f300, 0x1f64f, 2},  // pictures
      {0x1f680, 0x1f6ff, 2},  // and vehicles
      {0x1f900, 0x1f9ff, 2},  // and more of them
      {0x20000, 0x3fffd, 2},  // Chinese
  });
  const auto found =
      std::ranges::find_if(kBlocks, [code](const Block& block) { return block.first <= code && code <= block.last; });
  return found == kBlocks.end() ? 1 : found->columns;
}

struct Shown {
  std::string text;
  std::size_t columns = 0;
};

// As much of it as fits in so many columns, without what controls the terminal.
Shown shown_part(std::string_view text, std::size_t columns) {
  Shown shown;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '\033') {
      at = after_escape(text, at);
      continue;
    }
    const Letter letter = letter_at(text, at);
    const std::string_view bytes = text.substr(at, letter.size);
    at += letter.size;
    if (letter.is_control() && letter.size > 1) continue;  // of ISO 6429
    const std::size_t width = columns_of(letter.code);
    if (shown.columns + width > columns) break;
    shown.columns += width;
    shown.text += letter.is_stray_byte() ? "?" : letter.is_control() ? " " : bytes;
  }
  return shown;
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
    const std::size_t width = shown_part(bar.prefix, 2 * bar.prefix.size()).columns;
    if (drawn_++ > 0) text += "\n";
    if (width < columns) text += bar.prefix;
    text += shown_part(bar.text, width < columns ? columns - width : columns).text;
  }
  return text;
}

std::string_view colour_of_rank(int rank) {
  constexpr auto kColours = std::to_array<std::string_view>(
      {"\033[36m", "\033[32m", "\033[33m", "\033[35m", "\033[34m", "\033[96m", "\033[92m", "\033[93m"});
  return kColours[static_cast<std::size_t>(std::max(rank, 0)) % kColours.size()];
}

}  // namespace hvd::launcher
