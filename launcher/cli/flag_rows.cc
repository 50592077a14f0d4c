// What follows from the rows of the flag table.
#include <cmath>

#include "launcher/cli/flag_table.h"
#include "runtime/base/split.h"

namespace hvd::launcher {

namespace {

std::vector<FlagSpelling> make_spellings() {
  std::vector<FlagSpelling> spellings;
  for (const FlagRow& row : flag_table()) {
    for (const std::string_view text : split_bars(row.on)) spellings.push_back({text, &row, true});
    for (const std::string_view text : split_bars(row.off)) spellings.push_back({text, &row, false});
  }
  return spellings;
}

}  // namespace

std::string_view variable_of(const FlagRow& row) { return row.option ? name_of(*row.option) : row.other_variable; }

FlagRange range_of(const FlagRow& row) {
  if (!row.option || !std::isinf(row.min)) return {row.min, row.max};
  const config::OptionRow& option = option_row(*row.option);
  const double unit = row.export_as == FlagExport::kMegabytes ? 1 << 20 : 1;
  return {option.min / unit, option.max / unit};
}

std::vector<std::string_view> split_bars(std::string_view text) {
  return text.empty() ? std::vector<std::string_view>() : split(text, '|');
}

int value_count(FlagKind kind) {
  switch (kind) {
    case FlagKind::kSwitch:
    case FlagKind::kToggle: return 0;
    case FlagKind::kPair: return 2;
    default: return 1;
  }
}

const std::vector<FlagSpelling>& flag_spellings() {
  static const std::vector<FlagSpelling> spellings = make_spellings();
  return spellings;
}

const FlagSpelling* find_spelling(std::string_view text) {
  for (const FlagSpelling& spelling : flag_spellings()) {
    if (spelling.text == text) return &spelling;
  }
  return nullptr;
}

}  // namespace hvd::launcher
