#include "starters/pmi_line.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/wipe.h"

namespace hvd::starters {

namespace {

Status check_text(std::string_view text) {
  if (text.size() > kMaxPmiLine) return Status::internal("an answer of " + std::to_string(text.size()) + " bytes");
  if (std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; })) {
    return Status::internal("an answer with control characters");
  }
  return Status::ok();
}

}  // namespace

PmiLine::~PmiLine() {
  for (auto& [key, value] : words_) wipe(value);
}

Status PmiLine::add(std::string_view word, std::string** value) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return Status::internal("an answer without a key");
  const auto [entry, is_new] = words_.emplace(word.substr(0, equals), word.substr(equals + 1));
  if (!is_new) return Status::internal("an answer that says something twice");
  *value = &entry->second;
  return Status::ok();
}

Result<PmiLine> PmiLine::parse(std::string_view line) {
  HVD_RETURN_IF_ERROR(check_text(line));
  PmiLine parsed;
  std::string* last = nullptr;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, end - at);
    at = end + 1;
    if (word.empty()) continue;
    if (word.find('=') == std::string_view::npos && last != nullptr) {
      last->append(" ").append(word);
    } else {
      HVD_RETURN_IF_ERROR(parsed.add(word, &last));
    }
  }
  return parsed;
}

Result<PmiLine> PmiLine::parse_block(std::string_view block) {
  HVD_RETURN_IF_ERROR(check_text(block));
  PmiLine parsed;
  std::string word;
  word.reserve(block.size());  // so that no copy of the secret stays behind where it grew
  Status status;
  for (std::size_t at = 0; at < block.size() && status.is_ok(); ++at) {
    if (block[at] != ';') {
      word += block[at];
    } else if (at + 1 < block.size() && block[at + 1] == ';') {
      word += block[++at];
    } else {
      std::string* value = nullptr;
      status = parsed.add(word, &value);
      wipe(word);
    }
  }
  if (status.is_ok() && !word.empty()) status = Status::internal("an answer without an end");
  wipe(word);
  if (!status.is_ok()) return status;
  return parsed;
}

const std::string& PmiLine::operator[](std::string_view key) const {
  static const std::string kNothing;
  const auto found = words_.find(key);
  return found == words_.end() ? kNothing : found->second;
}

std::string pmi_request(const PmiWords& words) {
  std::string line;
  line.reserve(kMaxPmiLine);  // so that no copy of the secret stays behind where it grew
  for (const auto& [key, value] : words) {
    if (!line.empty()) line += ' ';
    line.append(key).append("=").append(value);
  }
  line += '\n';
  return line;
}

std::string pmi_block(const PmiWords& words) {
  std::size_t size = 0;
  for (const auto& [key, value] : words) size += key.size() + value.size() + 2;
  std::string block = std::to_string(size);
  block.resize(kPmiBlockHead, ' ');
  block.reserve(kPmiBlockHead + size);  // as above
  for (const auto& [key, value] : words) block.append(key).append("=").append(value).append(";");
  return block;
}

Result<std::size_t> pmi_block_size(std::string_view head) {
  const std::string_view blanks = " ";
  const std::size_t first = std::min(head.find_first_not_of(blanks), head.size());
  const std::string_view digits = head.substr(first, head.find_last_not_of(blanks) + 1 - first);
  std::size_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (error == std::errc() && end == digits.data() + digits.size() && size <= kMaxPmiLine) return size;
  return Status::internal("an answer that begins with no size, or with one of more than " +
                          std::to_string(kMaxPmiLine));
}

}  // namespace hvd::starters
