#include "launcher/cli/flag_parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

namespace hvd::launcher {

namespace {

// An option of CLI11 for every spelling of the table, and the way back from it. CLI11 only cuts words apart; values are
// checked by flag_values.cc, in the same way for the command line and the configuration file.
class OptionSet {
 public:
  OptionSet() {
    app_.set_help_flag();  // --help is a row of our table
    for (const FlagSpelling& spelling : flag_spellings()) {
      // -np and its like have been rewritten by normalise().
      if (spelling.text.starts_with("--") || spelling.text.size() == 2) add(spelling);
    }
  }

  CLI::App& app() { return app_; }
  const FlagSpelling* spelling(const CLI::Option* option) const { return spellings_.at(option); }

 private:
  void add(const FlagSpelling& spelling) {
    const std::string name(spelling.text);
    const int values = value_count(spelling.row->kind);
    CLI::Option* option =
        values == 0 ? app_.add_flag(name) : app_.add_option(name, [](const CLI::results_t&) { return true; });
    if (values > 0) option->type_size(values)->expected(1)->allow_extra_args(false);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    spellings_[option] = &spelling;
  }

  CLI::App app_;
  std::map<const CLI::Option*, const FlagSpelling*> spellings_;
};

std::vector<GivenFlag> in_order(const OptionSet& set, const std::vector<CLI::Option*>& order) {
  std::vector<GivenFlag> given;
  std::map<const CLI::Option*, std::size_t> used;  // values taken so far; parse_order has an entry per value
  for (std::size_t i = 0; i < order.size();) {
    const CLI::Option* option = order[i];
    GivenFlag flag{set.spelling(option), {}};
    const int values = value_count(flag.spelling->row->kind);
    for (int v = 0; v < values; ++v) flag.values.push_back(option->results().at(used[option]++));
    i += static_cast<std::size_t>(std::max(values, 1));
    given.push_back(std::move(flag));
  }
  return given;
}

Status check_exclusive(const std::vector<GivenFlag>& given) {
  for (auto later = given.begin(); later != given.end(); ++later) {
    for (auto earlier = given.begin(); earlier != later; ++earlier) {
      const FlagRow& a = *earlier->spelling->row;
      const FlagRow& b = *later->spelling->row;
      const bool both_sides = &a == &b && earlier->spelling->on != later->spelling->on;
      const bool same_group = &a != &b && !a.group.empty() && a.group == b.group;
      if (!both_sides && !same_group) continue;
      return Status::invalid_argument(std::string(earlier->spelling->text) + " and " +
                                      std::string(later->spelling->text) + " exclude each other");
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<GivenFlag>> parse_flags(const std::vector<std::string>& flags) {
  try {
    OptionSet set;
    std::vector<std::string> reversed(flags.rbegin(), flags.rend());  // as CLI11 wants them
    set.app().parse(std::move(reversed));
    std::vector<GivenFlag> given = in_order(set, set.app().parse_order());
    HVD_RETURN_IF_ERROR(check_exclusive(given));
    return given;
  } catch (const std::exception& error) {
    return Status::invalid_argument(error.what());
  }
}

}  // namespace hvd::launcher
