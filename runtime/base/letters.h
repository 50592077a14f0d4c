#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hvd {

// A letter of text in UTF-8, or a byte that is part of none.
struct Letter {
  char32_t code;     // of a byte: the byte
  std::size_t size;  // in bytes

  bool is_stray_byte() const { return size == 1 && code >= 0x80; }
  // Terminals may take it for a command, or for the beginning of one: those of ISO 6429 (U+0080 to U+009F) too, which
  // some also know as single bytes.
  bool is_control() const { return code < 0x20 || (code >= 0x7f && code < 0xa0); }
};

// That which begins at `at`, which is in the text.
Letter letter_at(std::string_view text, std::size_t at);

bool has_controls(std::string_view text);

// For messages: the text with a '?' for each of its controls but those in `kept`.
std::string without_controls(std::string_view text, std::string_view kept = "");

}  // namespace hvd
