#include "runtime/config/parse_value.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "runtime/base/letters.h"
#include "runtime/base/split.h"

namespace hvd::config {

namespace {

constexpr std::size_t kMaxQuoted = 80;
constexpr std::size_t kMaxCores = 4096;

template <typename T>
bool read_all(std::string_view text, T& value) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);  // from_chars takes no plus sign
  if (text.empty() || text.front() == '+') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::fabs(value) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

// " >= 0", " from 1 to 5", or "" without bounds.
std::string range_text(double min, double max) {
  constexpr double kFar = 9e18;  // about the end of int64: not worth telling
  if (min <= -kFar && max >= kFar) return "";
  if (max >= kFar) return " >= " + number_text(min);
  if (min <= -kFar) return " <= " + number_text(max);
  return " from " + number_text(min) + " to " + number_text(max);
}

Status unexpected(std::string_view found, const std::string& expected) {
  return Status::invalid_argument(quoted(found) + " is not " + expected);
}

// The power of two behind a size suffix, or -1.
int suffix_shift(std::string_view suffix) {
  const std::string lower = to_lower(suffix);
  if (lower.empty() || lower == "b") return 0;
  if (lower == "k" || lower == "kb" || lower == "kib") return 10;
  if (lower == "m" || lower == "mb" || lower == "mib") return 20;
  if (lower == "g" || lower == "gb" || lower == "gib") return 30;
  return -1;
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\v\f";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::string to_lower(std::string_view text) {
  std::string lower;
  for (const char c : text) lower.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return lower;
}

std::string quoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  std::size_t at = 0;
  while (at < text.size()) {
    const Letter letter = letter_at(text, at);
    if (at + letter.size > kMaxQuoted) break;
    for (const char c : text.substr(at, letter.size)) {
      const auto byte = static_cast<unsigned char>(c);
      if (letter.is_control())
        out += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 15U]};
      else
        out += c;
    }
    at += letter.size;
  }
  if (at < text.size()) out += "...";
  return out + "'";
}

Result<std::int64_t> parse_integer(std::string_view text, std::int64_t min, std::int64_t max) {
  std::int64_t value = 0;
  if (!read_all(trim(text), value) || value < min || value > max) {
    return unexpected(text, "an integer" + range_text(static_cast<double>(min), static_cast<double>(max)));
  }
  return value;
}

Result<double> parse_real(std::string_view text, double min, double max) {
  double value = 0;
  // isfinite: "nan" and "inf" are numbers to from_chars, and no setting of ours.
  if (!read_all(trim(text), value) || !std::isfinite(value) || value < min || value > max) {
    return unexpected(text, "a number" + range_text(min, max));
  }
  return value;
}

Result<std::int64_t> parse_bytes(std::string_view text, std::int64_t min, std::int64_t max) {
  const std::string_view body = trim(text);
  const std::size_t digits = std::min(body.find_first_not_of("0123456789+-"), body.size());
  const int shift = suffix_shift(trim(body.substr(digits)));
  std::int64_t count = 0;
  const bool readable = shift >= 0 && read_all(body.substr(0, digits), count);
  const bool fits = readable && count >= 0 && count <= (std::numeric_limits<std::int64_t>::max() >> shift);
  if (!fits || (count << shift) < min || (count << shift) > max) {
    return unexpected(text, "a number of bytes" + range_text(static_cast<double>(min), static_cast<double>(max)) +
                                " (as 67108864 or 64MB)");
  }
  return count << shift;
}

Result<bool> parse_bool(std::string_view text) {
  const std::string word = to_lower(trim(text));
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  std::int64_t number = 0;
  if (!read_all(std::string_view(word), number)) return unexpected(text, "a truth value (1, 0, true or false)");
  return number > 0;
}

Result<int> parse_choice(std::string_view text, std::string_view choices) {
  const std::string word = to_lower(trim(text));
  std::string expected;
  int index = 0;
  for (const std::string_view choice : split(choices, '|')) {
    if (word == to_lower(choice)) return index;
    if (!choice.empty()) expected += (expected.empty() ? "" : ", ") + std::string(choice);
    ++index;
  }
  return unexpected(text, "one of: " + expected);
}

Result<PortRange> parse_ports(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = parse_integer(text.substr(0, dash), 1, 65535);
  const auto last = dash == std::string_view::npos ? first : parse_integer(text.substr(dash + 1), 1, 65535);
  if (!first.is_ok() || !last.is_ok() || first.value() > last.value()) {
    return unexpected(text, "a range of ports, as 40000-40099");
  }
  return PortRange{static_cast<std::uint16_t>(first.value()), static_cast<std::uint16_t>(last.value())};
}

Result<std::vector<int>> parse_cores(std::string_view text) {
  std::vector<int> cores;
  for (const std::string_view piece : split(text, ',')) {
    const Result<std::int64_t> core = parse_integer(piece, 0, 4095);
    if (!core.is_ok() || cores.size() == kMaxCores) {
      return unexpected(text, "a comma-separated list of core numbers from 0 to 4095");
    }
    cores.push_back(static_cast<int>(core.value()));
  }
  return cores;
}

}  // namespace hvd::config
