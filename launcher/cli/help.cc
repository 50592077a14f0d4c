#include "launcher/cli/texts.h"

#include "launcher/cli/flag_table.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t kIndent = 28;
constexpr std::size_t kWidth = 100;

constexpr HelpHeading kHeadings[] = {
    {HelpSection::kGeneral, "General"},
    {HelpSection::kOutput, "Output"},
    {HelpSection::kHosts, "Hosts (one of these)"},
    {HelpSection::kBinding, "Processors and GPUs"},
    {HelpSection::kSsh, "Remote hosts"},
    {HelpSection::kJoin, "Hosts that call in"},
    {HelpSection::kTuning, "Performance"},
    {HelpSection::kAutotune, "Autotuning"},
    {HelpSection::kElastic, "Elastic jobs"},
    {HelpSection::kTimeline, "Timeline"},
    {HelpSection::kStall, "Stall check"},
    {HelpSection::kLibrary, "Libraries"},
    {HelpSection::kLogging, "Logging"},
    {HelpSection::kController, "Controller"},
    {HelpSection::kServe, "Ranks that something else starts"},
};

// Wraps `text` at kWidth; every line begins at column kIndent.
std::string wrapped(std::string_view text) {
  std::string out;
  std::size_t column = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (column + end + 1 > kWidth - kIndent && column > 0) {
      out += "\n" + std::string(kIndent, ' ');
      column = 0;
    }
    if (column > 0) out += ' ';
    out += text.substr(0, end);
    column += end + 1;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string row_text(const FlagRow& row) {
  std::string names;
  for (const std::string_view name : split_bars(row.on)) names += (names.empty() ? "  " : ", ") + std::string(name);
  for (const std::string_view name : split_bars(row.off)) names += ", " + std::string(name);
  if (!row.metavar.empty()) names += " " + std::string(row.metavar);
  const bool short_enough = names.size() + 2 <= kIndent;
  const std::string gap = short_enough ? std::string(kIndent - names.size(), ' ') : "\n" + std::string(kIndent, ' ');
  return names + gap + wrapped(row.help) + "\n";
}

}  // namespace

std::span<const HelpHeading> help_headings() { return kHeadings; }

std::string help_text() {
  std::string out =
      "Usage: horovodrun -np N [flags] command [arguments]\n"
      "       horovodrun --serve -np N [--listen ADDRESS] [--secret-file FILE]\n"
      "       horovodrun --status JOB\n\n"
      "Starts N processes of the command on the given hosts and joins them into one Horovod job.\n"
      "Flags come before the command; everything after its first word belongs to the command.\n"
      "  horovodrun -np 2 python train.py\n"
      "  horovodrun -np 8 -H host1:4,host2:4 python train.py\n";
  for (const HelpHeading& heading : kHeadings) {
    out += "\n" + std::string(heading.title) + ":\n";
    for (const FlagRow& row : flag_table()) {
      if (row.section == heading.section) out += row_text(row);
    }
  }
  return out +
         "\nThe exit status is that of the first rank that failed, 128+n for signal n, and 2 for a wrong command "
         "line.\n";
}

}  // namespace hvd::launcher
