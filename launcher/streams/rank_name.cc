#include "launcher/streams/rank_name.h"

#include "launcher/process/progress_bars.h"

namespace hvd::launcher {
namespace {

std::string expanded(const PrefixTemplate& prefix, const RankName& name, bool is_stderr, std::string_view time) {
  return prefix.expand({.rank = name.rank,
                        .local_rank = name.local_rank,
                        .host = name.host,
                        .stream = is_stderr ? "stderr" : "stdout",
                        .time = time});
}

}  // namespace

LinePrefixer::Prefix prefix_of(const OutputConfig& look, const RankName& name, bool is_stderr, const TimeStamp& stamp,
                               std::string_view colour) {
  if (!look.prefix) return rank_prefix(name.rank, is_stderr, stamp, colour);
  const auto in_colour = [colour = std::string(colour)](const std::string& text) {
    return colour.empty() ? text : colour + text + std::string(kColourEnd);
  };
  if (!look.prefix->has_time()) {
    const std::string text = in_colour(expanded(*look.prefix, name, is_stderr, ""));
    return [text, stamp] { return stamp ? stamp() + text : text; };
  }
  return [prefix = *look.prefix, name, is_stderr, stamp = stamp ? stamp : TimeStamp(iso_stamp), in_colour] {
    std::string time = stamp();
    while (time.ends_with(' ')) time.pop_back();  // which parts it from what follows
    return in_colour(expanded(prefix, name, is_stderr, time));
  };
}

}  // namespace hvd::launcher
