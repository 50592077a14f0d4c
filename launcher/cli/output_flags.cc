#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/cli/job_flags.h"
#include "runtime/base/split.h"
#include "runtime/config/parse_value.h"

namespace hvd::launcher {
namespace {

using Ranges = std::vector<std::pair<int, int>>;

bool read_rank(std::string_view text, int& rank) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return error == std::errc() && end == text.data() + text.size() && rank >= 0;
}

// "0,8-15".
Result<Ranges> parse_ranks(std::string_view text) {
  Ranges ranges;
  for (const std::string_view piece : split(text, ',')) {
    const std::string_view word = config::trim(piece);
    const std::size_t dash = word.find('-');
    std::pair<int, int> range;
    const bool ok = read_rank(word.substr(0, dash), range.first) &&
                    read_rank(dash == std::string_view::npos ? word : word.substr(dash + 1), range.second);
    if (!ok || range.first > range.second) {
      return Status::invalid_argument(config::quoted(text) + ": expected ranks as in 0,8-15");
    }
    ranges.push_back(range);
  }
  return ranges;
}

OutputConfig::Stamp stamp_of(const FlagValues& values) {
  using Stamp = OutputConfig::Stamp;
  if (values.is_true("prefix_output_with_timestamp")) return Stamp::kCtime;
  const std::string format = values.get<std::string>("timestamp").value_or("");
  if (format == "iso") return Stamp::kIso;
  return format == "relative" ? Stamp::kRelative : Stamp::kNone;
}

OutputConfig::Colour colour_of(const FlagValues& values, const config::EnvReader& env) {
  using Colour = OutputConfig::Colour;
  const std::string when = values.get<std::string>("color").value_or("auto");
  if (when != "auto") return when == "always" ? Colour::kAlways : Colour::kNever;
  const std::string terminal = env.get("TERM").value_or("");
  const bool unwanted = !env.get("NO_COLOR").value_or("").empty() || terminal.empty() || terminal == "dumb";
  return unwanted ? Colour::kNever : Colour::kAuto;
}

}  // namespace

Status read_debug_rank(const FlagValues& values, LaunchConfig& config) {
  const FlagValues::Entry* const flag = values.find("debug_rank");
  if (flag == nullptr) return Status::ok();
  const auto rank = static_cast<int>(std::get<std::int64_t>(flag->value));
  const auto refused = [&](const std::string& why) { return Status::invalid_argument(flag->source + why); };
  if (config.elastic) return refused(": ranks of an elastic job come and go, and a rank that waits is taken for stuck");
  if (rank >= config.num_proc) {
    return refused(": there is no rank " + std::to_string(rank) + " among " + std::to_string(config.num_proc));
  }
  if (const auto* input = values.find("stdin")) return refused(" and " + input->source + " contradict each other");
  if (values.is_true("no_prefix")) {
    return refused(" shows that rank without a prefix, so the others need theirs: leave --no-prefix out");
  }
  config.debug_rank = config.output.raw_rank = rank;
  return Status::ok();
}

Result<OutputConfig> output_config(const FlagValues& values, const config::EnvReader& env, int most_ranks) {
  OutputConfig output;
  output.colour = colour_of(values, env);
  output.stamp = stamp_of(values);
  output.with_prefix = !values.is_true("no_prefix");
  if (const FlagValues::Entry* prefix = values.find("prefix_template")) {
    Result<PrefixTemplate> parsed = PrefixTemplate::parse(std::get<std::string>(prefix->value));
    if (!parsed.is_ok()) return parsed.status().annotate(prefix->source);
    output.prefix = std::move(parsed).value();
  }
  output.last_states = values.get<std::string>("progress_bars").value_or("keep") == "last";
  if (const FlagValues::Entry* shown = values.find("show_ranks")) {
    Result<Ranges> ranges = parse_ranks(std::get<std::string>(shown->value));
    if (!ranges.is_ok()) return ranges.status().annotate(shown->source);
    output.shown_ranks = std::move(ranges).value();
    if (output.shown_ranks.front().first >= most_ranks) {
      return Status::invalid_argument(shown->source + ": there is no rank " +
                                      std::to_string(output.shown_ranks.front().first) + " among " +
                                      std::to_string(most_ranks));
    }
  }
  const auto& shown = output.shown_ranks;
  const bool one_rank = shown.empty() ? most_ranks == 1 : shown.size() == 1 && shown[0].first == shown[0].second;
  if (!output.with_prefix && !one_rank) {
    return Status::invalid_argument("--no-prefix is for one rank: nothing would tell the lines of several apart " +
                                    std::string("(--show-ranks 0 shows rank 0 alone)"));
  }
  return output;
}

}  // namespace hvd::launcher
