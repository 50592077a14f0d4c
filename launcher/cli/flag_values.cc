#include "launcher/cli/flag_values.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/split.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

std::int64_t bound(double value) { return static_cast<std::int64_t>(value); }

template <typename T>
Result<FlagValue> wrap(const Result<T>& result, const std::string& source) {
  if (!result.is_ok()) return result.status().annotate(source);
  return FlagValue(result.value());
}

Result<FlagValue> parse_list(const std::string& text, const std::string& source) {
  std::vector<std::string> parts;
  for (const std::string_view piece : split(text, ',')) {
    const std::string part(config::trim(piece));
    if (part.empty()) return Status::invalid_argument(source + ": " + config::quoted(text) + " has an empty part");
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return FlagValue(std::move(parts));
}

Result<FlagValue> parse_pair(const FlagRow& row, const std::vector<std::string>& texts, const std::string& source) {
  if (texts.size() != 2) return Status::invalid_argument(source + " takes two values");
  const FlagRange range = range_of(row);
  std::vector<std::string> parts;
  for (const std::string& text : texts) {
    const Result<std::int64_t> number = config::parse_integer(text, bound(range.min), bound(range.max));
    if (!number.is_ok()) return number.status().annotate(source);
    parts.push_back(std::to_string(number.value()));
  }
  return FlagValue(std::move(parts));
}

}  // namespace

Result<FlagValue> parse_flag_value(const FlagRow& row, const std::vector<std::string>& texts,
                                   const std::string& source) {
  if (row.kind == FlagKind::kPair) return parse_pair(row, texts, source);
  HVD_CHECK(texts.size() == 1, "one value for a flag that is no pair");
  const std::string& text = texts.front();
  const FlagRange range = range_of(row);
  switch (row.kind) {
    case FlagKind::kSwitch:
    case FlagKind::kToggle: return wrap(config::parse_bool(text), source);
    case FlagKind::kInteger: return wrap(config::parse_integer(text, bound(range.min), bound(range.max)), source);
    case FlagKind::kReal: return wrap(config::parse_real(text, range.min, range.max), source);
    case FlagKind::kList: return parse_list(text, source);
    case FlagKind::kChoice: {
      const Result<int> index = config::parse_choice(text, row.choices);
      if (!index.is_ok()) return index.status().annotate(source);
      return FlagValue(std::string(split_bars(row.choices)[static_cast<std::size_t>(index.value())]));
    }
    case FlagKind::kText:
    case FlagKind::kWords:
    case FlagKind::kPair: break;
  }
  // An argument list and an environment end at a NUL byte; a YAML string may hold one.
  if (text.empty() || text.find('\0') != std::string::npos) {
    return Status::invalid_argument(source + ": " + config::quoted(text) + " is not a text");
  }
  if (row.option && option_row(*row.option).kind == config::OptionKind::kCores) {
    const Result<std::vector<int>> cores = config::parse_cores(text);
    if (!cores.is_ok()) return cores.status().annotate(source);
  }
  return row.kind == FlagKind::kWords ? FlagValue(std::vector<std::string>{text}) : FlagValue(text);
}

void FlagValues::set(const FlagRow& row, FlagValue value, std::string source) {
  const auto found = entries_.find(row.dest);
  if (found != entries_.end() && row.kind == FlagKind::kList) {
    auto& list = std::get<std::vector<std::string>>(found->second.value);
    for (const std::string& part : std::get<std::vector<std::string>>(value)) {
      if (std::find(list.begin(), list.end(), part) == list.end()) list.push_back(part);
    }
    return;
  }
  if (found != entries_.end() && row.kind == FlagKind::kWords) {
    auto& words = std::get<std::vector<std::string>>(found->second.value);
    words.push_back(std::get<std::vector<std::string>>(value).front());
    return;
  }
  entries_.insert_or_assign(std::string(row.dest), Entry{std::move(value), std::move(source)});
}

const FlagValues::Entry* FlagValues::find(std::string_view dest) const {
  const auto found = entries_.find(dest);
  return found == entries_.end() ? nullptr : &found->second;
}

std::string FlagValues::source_of(std::initializer_list<std::string_view> dests) const {
  for (const std::string_view dest : dests) {
    if (const Entry* entry = find(dest)) return entry->source;
  }
  return "";
}

std::string FlagValues::source_besides(std::initializer_list<std::string_view> dests) const {
  for (const auto& [dest, entry] : entries_) {
    if (std::ranges::find(dests, dest) == dests.end()) return entry.source;
  }
  return "";
}

}  // namespace hvd::launcher
