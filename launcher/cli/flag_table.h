#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/config/option_table.h"

namespace hvd::launcher {

enum class FlagKind {
  kSwitch,  // present or not
  kToggle,  // --x / --no-x: two spellings of one truth value
  kInteger,
  kReal,
  kText,
  kList,    // comma-separated, repeatable; the parts are joined in the order given
  kWords,   // a text, repeatable
  kPair,    // two integers
  kChoice,  // one of `choices`, any case; the value is the choice as the table spells it
};

// How a value becomes the text of the variable.
enum class FlagExport {
  kNone,
  kPlain,
  kMegabytes,   // times 1048576
  kReal,        // as Python prints a float: 20 becomes 20.0
  kBit,         // 1 or 0
  kInverseBit,  // 0 or 1
};

// What a flag needs that may not be there; its use is then announced once (notices.h).
enum class Feature { kBuilt, kGpu, kMpi };

// clang-format off
enum class HelpSection {
  kGeneral, kSsh, kTuning, kAutotune, kElastic, kTimeline, kStall, kLibrary, kLogging, kHosts, kBinding, kOutput, kController, kServe, kJoin,
};
// clang-format on

// One flag of `horovodrun`. The one table drives parsing, --help, the variables given to ranks and the keys of the
// configuration file.
struct FlagRow {
  std::string_view dest;  // name of the value; unique
  std::string_view on;    // spellings, joined by '|'
  FlagKind kind = FlagKind::kText;
  HelpSection section = HelpSection::kGeneral;
  std::string_view help;
  std::string_view metavar{};
  std::string_view off{};  // kToggle: the opposite spellings
  // Whose variable the flag sets; it also gives the range, unless min and max do.
  std::optional<config::Option> option{};
  std::string_view other_variable{};  // the same for a variable that is none of ours
  FlagExport export_as = FlagExport::kNone;
  std::string_view yaml{};  // section.key
  bool yaml_inverted = false;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view choices{};  // a|b|c
  std::string_view group{};    // rows of one group exclude each other
  std::string_view needs{};    // exported only if the value of this dest is true or not empty
  Feature feature = Feature::kBuilt;
};

std::span<const FlagRow> flag_table();
// Requires: a row has this dest.
const FlagRow& flag_row(std::string_view dest);
// The variable that the flag sets; "" when it sets none.
std::string_view variable_of(const FlagRow& row);
struct FlagRange {
  double min;
  double max;
};
// What a number may be, in the flag's own unit.
FlagRange range_of(const FlagRow& row);
// The parts of "a|b|c".
std::vector<std::string_view> split_bars(std::string_view text);
// How many words follow the flag: 0, 1 or 2.
int value_count(FlagKind kind);

// A spelling as it stands on a command line.
struct FlagSpelling {
  std::string_view text;
  const FlagRow* row = nullptr;
  bool on = true;  // false: the opposite spelling of a kToggle
};
// All spellings, in the order of the table.
const std::vector<FlagSpelling>& flag_spellings();
const FlagSpelling* find_spelling(std::string_view text);

}  // namespace hvd::launcher
