#include "launcher/cli/flag_parser.h"

#include <algorithm>
#include <iterator>

#include "runtime/config/nearest.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

// A word that stands for a flag: its spelling and what is glued to it.
struct FlagWord {
  const FlagSpelling* spelling = nullptr;
  std::optional<std::string> value;  // of --flag=value, -f=value or -fvalue
};

// Flags of mpirun that old command lines bring along, and what is done instead.
struct ForeignFlag {
  std::string_view name;
  std::string_view instead;
};
constexpr ForeignFlag kForeignFlags[] = {
    {"-genv", "-x NAME=VALUE gives ranks a variable"},
    {"-c", "the number of processes is -np N"},
    {"-mca", "it is for MPI, and there is none: leave it and its values out"},
    {"--mca", "it is for MPI, and there is none: leave it and its values out"},
    {"-bind-to", "--bind core binds ranks to cores"},
    {"--bind-to", "--bind core binds ranks to cores"},
    {"-map-by", "hosts are filled in the order listed: leave it and its value out"},
    {"--map-by", "hosts are filled in the order listed: leave it and its value out"},
    {"--oversubscribe", "a host has as many slots as -H or the hostfile says: leave it out"},
    {"--allow-run-as-root", "root may run horovodrun: leave it out"},
};

const ForeignFlag* find_foreign(std::string_view name) {
  const auto* flag = std::find_if(std::begin(kForeignFlags), std::end(kForeignFlags),
                                  [&](const ForeignFlag& one) { return one.name == name; });
  return flag == std::end(kForeignFlags) ? nullptr : flag;
}

Status unknown_flag(const std::string& name) {
  if (const ForeignFlag* flag = find_foreign(name)) {
    return Status::invalid_argument(std::string(flag->name) + " is a flag of mpirun; " + std::string(flag->instead));
  }
  std::vector<std::string_view> known;
  for (const FlagSpelling& spelling : flag_spellings()) known.push_back(spelling.text);
  return Status::invalid_argument("unknown flag " + config::quoted(name) + config::did_you_mean(name, known));
}

// -p22 and -Ha:1, but -nq is a mistyped -np.
bool may_be_glued(const FlagRow& row, char first) {
  return value_count(row.kind) == 1 && (row.kind != FlagKind::kInteger || (first >= '0' && first <= '9'));
}

Result<FlagWord> read_flag(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  if (const FlagSpelling* spelling = find_spelling(name)) {
    FlagWord flag{spelling, std::nullopt};
    if (equals != std::string::npos) flag.value = word.substr(equals + 1);
    return flag;
  }
  const bool glued = word.size() > 2 && word[1] != '-' && find_foreign(name) == nullptr;
  const FlagSpelling* letter = glued ? find_spelling(std::string_view(word).substr(0, 2)) : nullptr;
  if (letter != nullptr && may_be_glued(*letter->row, word[2])) return FlagWord{letter, word.substr(2)};
  return unknown_flag(name);
}

// What messages call a flag. `-np` is `--num-proc` there, `-p` is `-p`.
const FlagSpelling& name_in_messages(const FlagSpelling& spelling) {
  const bool fine = spelling.text.starts_with("--") || spelling.text.size() == 2;
  return fine ? spelling : *find_spelling(split_bars(spelling.row->on).back());
}

// Takes the flag's values: what is glued to it, or the words that follow from `at`.
Result<std::vector<std::string>> take_values(const FlagWord& flag, const std::vector<std::string>& args,
                                             std::size_t& at) {
  const std::string name(flag.spelling->text);
  const int wanted = value_count(flag.spelling->row->kind);
  if (flag.value && wanted != 1) {
    return Status::invalid_argument(name + (wanted == 0 ? " takes no value" : " takes two values, without '='"));
  }
  if (flag.value) return std::vector<std::string>{*flag.value};
  std::vector<std::string> values;
  for (int i = 0; i < wanted; ++i, ++at) {
    if (at == args.size()) return Status::invalid_argument(name + " needs a value");
    if (find_spelling(args[at]) != nullptr) {
      return Status::invalid_argument(name + " needs a value, but " + args[at] + " follows (write " + name +
                                      "=VALUE for a value that looks like a flag)");
    }
    values.push_back(args[at]);
  }
  return values;
}

bool is_flag_word(const std::vector<std::string>& args, std::size_t at) {
  return at < args.size() && args[at].size() > 1 && args[at].starts_with('-') && args[at] != "--";
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

Result<CutCommandLine> cut_command_line(const std::vector<std::string>& args) {
  CutCommandLine out;
  std::size_t at = 0;
  while (is_flag_word(args, at)) {
    HVD_ASSIGN_OR_RETURN(const FlagWord flag, read_flag(args[at]));
    ++at;
    HVD_ASSIGN_OR_RETURN(std::vector<std::string> values, take_values(flag, args, at));
    out.flags.push_back({&name_in_messages(*flag.spelling), std::move(values)});
  }
  if (at < args.size() && args[at] == "--") ++at;
  out.command.assign(args.begin() + static_cast<std::ptrdiff_t>(at), args.end());
  HVD_RETURN_IF_ERROR(check_exclusive(out.flags));
  return out;
}

std::optional<int> results_fd_of(const std::vector<std::string>& args) {
  const FlagRow& row = flag_row("results_fd");
  std::optional<int> found;
  for (std::size_t at = 0; is_flag_word(args, at);) {
    const Result<FlagWord> flag = read_flag(args[at++]);
    if (!flag.is_ok()) break;
    const auto values = take_values(flag.value(), args, at);
    if (!values.is_ok()) break;
    if (flag.value().spelling->row != &row) continue;
    const auto number = config::parse_integer(values.value().front(), static_cast<std::int64_t>(row.min),
                                              static_cast<std::int64_t>(row.max));
    if (!number.is_ok()) return std::nullopt;
    found = static_cast<int>(number.value());
  }
  return found;
}

}  // namespace hvd::launcher
