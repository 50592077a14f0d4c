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

// How the user asked for it: the spelling on the command line, else the place in the configuration file.
std::string asked_by(const FlagRow& row, const std::vector<GivenFlag>& given, const FlagValues::Entry& entry) {
  for (const GivenFlag& flag : given) {
    if (flag.spelling->row == &row) return std::string(flag.spelling->text);
  }
  return entry.source;
}

std::string users_of(Feature feature, const std::vector<GivenFlag>& given, const FlagValues& values) {
  std::string users;
  for (const FlagRow& row : flag_table()) {
    const FlagValues::Entry* entry = values.find(row.dest);
    if (row.feature != feature || entry == nullptr) continue;
    const bool* truth = std::get_if<bool>(&entry->value);
    if (truth != nullptr && !*truth) continue;
    users += (users.empty() ? "" : ", ") + asked_by(row, given, *entry);
  }
  return users;
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

std::vector<std::string> notices_of(const std::vector<GivenFlag>& given, const FlagValues& values) {
  std::vector<std::string> notices;
  for (const FeatureText& text : kTexts) {
    const std::string users = users_of(text.feature, given, values);
    if (!users.empty()) notices.push_back(users + ": " + std::string(text.text));
  }
  add_deprecations(given, notices);
  const FlagValues::Entry* keys = values.find("ssh_host_keys");
  if (keys != nullptr && std::get<std::string>(keys->value) == "off") {
    notices.emplace_back("--ssh-host-keys=off: anybody who can answer in place of a host can read the job's secret");
  }
  return notices;
}

Result<std::vector<std::string>> controller_notices(const Variables& given, const config::EnvReader& env) {
  // What Horovod knows; the first is what ours has.
  constexpr std::pair<Option, std::string_view> kChoices[] = {{Option::kController, "gloo|mpi"},
                                                              {Option::kCpuOperations, "gloo|mpi|ccl"}};
  std::string asked;
  for (const auto& [option, choices] : kChoices) {
    const std::string name(config::name_of(option));
    const auto found = given.find(name);
    const std::string value = found != given.end() ? found->second : env.get(name).value_or("");
    if (value.empty()) continue;
    const Result<int> choice = config::parse_choice(value, choices);
    HVD_RETURN_IF_ERROR(choice.status().annotate(name));
    if (choice.value() > 0) asked += (asked.empty() ? "" : ", ") + name + "=" + config::quoted(value);
  }
  if (asked.empty()) return std::vector<std::string>();
  return std::vector{asked + ": this Horovod has neither MPI nor oneCCL; ignored, the job runs over Gloo"};
}

}  // namespace hvd::launcher
