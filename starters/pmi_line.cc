#include "starters/pmi_line.h"

#include <algorithm>

#include "starters/announcement.h"

namespace hvd::starters {

PmiLine::~PmiLine() {
  for (auto& [key, value] : words_) wipe(value);
}

Result<PmiLine> PmiLine::parse(std::string_view line) {
  if (line.size() > kMaxPmiLine) return Status::internal("an answer of " + std::to_string(line.size()) + " bytes");
  if (std::ranges::any_of(line, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; })) {
    return Status::internal("an answer with control characters");
  }
  PmiLine parsed;
  std::string* last = nullptr;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos && last != nullptr) {
      last->append(" ").append(word);
      continue;
    }
    if (equals == std::string_view::npos || equals == 0) return Status::internal("an answer without a key");
    const auto [entry, is_new] = parsed.words_.emplace(word.substr(0, equals), word.substr(equals + 1));
    if (!is_new) return Status::internal("an answer that says something twice");
    last = &entry->second;
  }
  return parsed;
}

const std::string& PmiLine::operator[](std::string_view key) const {
  static const std::string kNothing;
  const auto found = words_.find(key);
  return found == words_.end() ? kNothing : found->second;
}

std::string pmi_request(const std::vector<std::pair<std::string_view, std::string_view>>& words) {
  std::string line;
  line.reserve(kMaxPmiLine);  // so that no copy of the secret stays behind where it grew
  for (const auto& [key, value] : words) {
    if (!line.empty()) line += ' ';
    line.append(key).append("=").append(value);
  }
  line += '\n';
  return line;
}

}  // namespace hvd::starters
