#include "runtime/base/letters.h"

namespace hvd {
namespace {

// Not what UTF-8 writes in fewer bytes, half a pair of UTF-16, or above all letters.
bool may_have(char32_t code, std::size_t size) {
  const char32_t least = size == 4 ? 0x10000 : size == 3 ? 0x800 : 0x80;
  return code >= least && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
}

}  // namespace

Letter letter_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const Letter byte = {.code = first, .size = 1};
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() - at < size) return byte;
  char32_t code = first & (0x7fU >> size);
  for (const char next : text.substr(at + 1, size - 1)) {
    const auto more = static_cast<unsigned char>(next);
    if ((more & 0xc0) != 0x80) return byte;
    code = code << 6 | (more & 0x3f);
  }
  return may_have(code, size) ? Letter{.code = code, .size = size} : byte;
}

bool has_controls(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Letter letter = letter_at(text, at);
    if (letter.is_control()) return true;
    at += letter.size;
  }
  return false;
}

std::string without_controls(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Letter letter = letter_at(text, at);
    const std::string_view bytes = text.substr(at, letter.size);
    const bool is_kept = !letter.is_control() || kept.find(bytes) != std::string_view::npos;
    out += is_kept ? bytes : "?";
    at += letter.size;
  }
  return out;
}

}  // namespace hvd
