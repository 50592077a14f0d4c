#include "launcher/cli/texts.h"

#include <algorithm>
#include <utility>

#include "runtime/config/option_table.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {

namespace {

using config::Option;

struct FeatureText {
  Feature feature;
  std::string_view text;
};

constexpr FeatureText kTexts[] = {
    {Feature::kMpi, "this Horovod has no MPI; ignored, the job runs over Gloo"},
    {Feature::kGpu, "a process set has one stream on a GPU; no effect"},
};

bool is_on_command_line(const FlagRow& row, const std::vector<GivenFlag>& given) {
  return std::ranges::any_of(given, [&](const GivenFlag& flag) { return flag.spelling->row == &row; });
}

// How the user asked for it: the spelling on the command line, else the place in the configuration file.
std::string asked_by(const FlagRow& row, const std::vector<GivenFlag>& given, const FlagValues::Entry& entry) {
  for (const GivenFlag& flag : given) {
    if (flag.spelling->row == &row) return std::string(flag.spelling->text);
  }
  return entry.source;
}

bool asks_for_something(const FlagValues::Entry* entry) {
  const bool* truth = entry == nullptr ? nullptr : std::get_if<bool>(&entry->value);
  return entry != nullptr && (truth == nullptr || *truth);
}

void add_to_list(std::string& list, const std::string& name) { list += (list.empty() ? "" : ", ") + name; }

std::string users_of(Feature feature, const std::vector<GivenFlag>& given, const FlagValues& values) {
  std::string users;
  for (const FlagRow& row : flag_table()) {
    const FlagValues::Entry* entry = values.find(row.dest);
    if (row.feature == feature && asks_for_something(entry)) add_to_list(users, asked_by(row, given, *entry));
  }
  return users;
}

// The flags that others need.
std::vector<const FlagRow*> needed_flags() {
  std::vector<const FlagRow*> needed;
  for (const FlagRow& row : flag_table()) {
    if (row.needs.empty() || row.needs == row.dest) continue;
    const FlagRow* other = &flag_row(row.needs);
    if (std::ranges::find(needed, other) == needed.end()) needed.push_back(other);
  }
  return needed;
}

// What is not exported because something that it needs was not said. Who has switched that off knows.
void add_lonely_flags(const std::vector<GivenFlag>& given, const FlagValues& values,
                      std::vector<std::string>& notices) {
  for (const FlagRow* needed : needed_flags()) {
    if (values.has(needed->dest)) continue;
    std::string users;
    std::string_view name = needed->yaml;  // unless one of them is a flag
    for (const FlagRow& row : flag_table()) {
      const FlagValues::Entry* entry = values.find(row.dest);
      if (row.needs != needed->dest || !asks_for_something(entry)) continue;
      add_to_list(users, asked_by(row, given, *entry));
      if (is_on_command_line(row, given)) name = split_bars(needed->on).back();
    }
    if (!users.empty()) notices.push_back(users + ": no effect without " + std::string(name));
  }
}

// The same as add_lonely_flags for variables that the user has set.
void add_lonely_variables(const Variables& given, const config::EnvReader& env, std::vector<std::string>& notices) {
  for (const FlagRow* needed : needed_flags()) {
    if (!value_of(*needed->option, given, env).empty()) continue;
    std::string users;
    for (const FlagRow& row : flag_table()) {
      if (row.needs != needed->dest) continue;
      const std::string value = value_of(*row.option, given, env);
      const auto truth = config::parse_bool(value);
      const bool is_off = row.kind == FlagKind::kToggle && truth.is_ok() && !truth.value();
      if (!value.empty() && !is_off) add_to_list(users, std::string(variable_of(row)));
    }
    if (!users.empty()) notices.push_back(users + ": no effect without " + std::string(variable_of(*needed)));
  }
}

bool uses(const std::vector<GivenFlag>& given, std::string_view spelling) {
  return std::any_of(given.begin(), given.end(), [&](const GivenFlag& f) { return f.spelling->text == spelling; });
}

void add_deprecations(const std::vector<GivenFlag>& given, std::vector<std::string>& notices) {
  if (uses(given, "--log-hide-timestamp")) {
    notices.emplace_back("--log-hide-timestamp is deprecated; use --log-without-timestamp");
  }
  if (uses(given, "--no-log-hide-timestamp")) {
    notices.emplace_back("--no-log-hide-timestamp is deprecated; use --log-with-timestamp");
  }
  for (const GivenFlag& flag : given) {
    if (flag.spelling->row->dest != "network_interface" || flag.values.front().find(',') == std::string::npos) continue;
    notices.emplace_back("a list in --network-interface is deprecated; use --network-interfaces");
    return;
  }
}

}  // namespace

std::string value_of(Option option, const Variables& given, const config::EnvReader& env) {
  const std::string name(config::name_of(option));
  const auto found = given.find(name);
  return found != given.end() ? found->second : env.get(name).value_or("");
}

std::vector<std::string> notices_of(const std::vector<GivenFlag>& given, const FlagValues& values) {
  std::vector<std::string> notices;
  for (const FeatureText& text : kTexts) {
    const std::string users = users_of(text.feature, given, values);
    if (!users.empty()) notices.push_back(users + ": " + std::string(text.text));
  }
  add_lonely_flags(given, values, notices);
  add_deprecations(given, notices);
  const FlagValues::Entry* keys = values.find("ssh_host_keys");
  if (keys != nullptr && std::get<std::string>(keys->value) == "off") {
    notices.emplace_back("--ssh-host-keys=off: anybody who can answer in place of a host can read the job's secret");
  }
  return notices;
}

Result<std::vector<std::string>> variable_notices(const Variables& given, const config::EnvReader& env) {
  // What Horovod knows; the first is what ours has.
  constexpr std::pair<Option, std::string_view> kChoices[] = {{Option::kController, "gloo|mpi"},
                                                              {Option::kCpuOperations, "gloo|mpi|ccl"}};
  std::string asked;
  for (const auto& [option, choices] : kChoices) {
    const std::string value = value_of(option, given, env);
    if (value.empty()) continue;
    const std::string name(config::name_of(option));
    const Result<int> choice = config::parse_choice(value, choices);
    HVD_RETURN_IF_ERROR(choice.status().annotate(name));
    if (choice.value() > 0) add_to_list(asked, name + "=" + config::quoted(value));
  }
  std::vector<std::string> notices;
  if (!asked.empty()) {
    notices.push_back(asked + ": this Horovod has neither MPI nor oneCCL; ignored, the job runs over Gloo");
  }
  add_lonely_variables(given, env, notices);
  return notices;
}

}  // namespace hvd::launcher
