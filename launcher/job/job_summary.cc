// The end of a job for people.
#include "launcher/job/job_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <set>

namespace hvd::launcher {
namespace {

constexpr double kClearly = 0.05;  // of the time: what ranks wait less than that differs from run to run
constexpr std::uint64_t kShortSession = 1'000'000;  // microseconds: of less, nothing can be said

double lived(const ProcessRecord& record) { return record.ended ? as_seconds(*record.ended - record.started) : 0; }
bool has_failed(const ProcessRecord& record) { return record.ended && (!record.status || !record.status->ok()); }

std::string seconds_text(double span) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", span);
  return text;
}

std::string percent_text(double part) { return std::to_string(std::lround(100 * part)) + " %"; }

std::string bytes_text(std::uint64_t bytes) {
  constexpr auto kUnits = std::to_array<const char*>({"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"});
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double amount = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", amount, kUnits[unit]);
  return text;
}

std::string end_of(const ProcessRecord& record) {
  if (!record.ended) return "still there";
  if (!record.status) return "host lost";
  if (record.status->signal != 0) return signal_name(record.status->signal);
  return "exit code " + std::to_string(record.status->code);
}

std::string rank_of(const ProcessRecord& record) { return record.rank ? std::to_string(*record.rank) : "-"; }

using Row = std::array<std::string, 7>;

Row row_of(const ProcessRecord& record) {
  Row row{rank_of(record), record.host, end_of(record), "-", "-", "-", "-"};
  if (record.ended) row[3] = seconds_text(lived(record));
  if (!record.work) return row;
  row[4] = std::to_string(record.work->collectives);
  row[5] = bytes_text(record.work->bytes);
  row[6] = seconds_text(static_cast<double>(record.work->waited_us) / 1e6);
  if (const auto part = waited_part(record)) row[6] += " (" + percent_text(*part) + ")";
  return row;
}

// Those of whom somebody wants to read: failed ones, then those that others waited for, then the rest; in the order of
// ranks.
std::vector<const ProcessRecord*> shown(const ProcessLedger& processes) {
  std::vector<const ProcessRecord*> all;
  for (const auto& [process, record] : processes.all()) all.push_back(&record);
  if (all.size() > kMostRows) {
    std::ranges::stable_sort(
        all, {}, [](const ProcessRecord* one) { return std::pair(!has_failed(*one), waited_part(*one).value_or(1)); });
    all.resize(kMostRows);
  }
  std::ranges::stable_sort(all, {}, [](const ProcessRecord* one) { return std::pair(one->rank, one->started); });
  return all;
}

std::string table_of(const ProcessLedger& processes) {
  std::vector<Row> rows = {{"rank", "host", "end", "ran", "collectives", "data", "waited"}};
  for (const ProcessRecord* record : shown(processes)) rows.push_back(row_of(*record));
  std::array<std::size_t, std::tuple_size_v<Row>> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += "\n ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string gap(widths[i] - row[i].size(), ' ');
      const bool is_text = i == 1 || i == 2;
      text += " " + (is_text ? row[i] + gap : gap + row[i]) + (i + 1 < row.size() ? " " : "");
    }
  }
  return text;
}

// How many collectives a process took part in, where its figures are of all its sessions and long enough to say
// something; else 0. One that was killed has said nothing of its last session.
std::uint64_t compared_work(const ProcessRecord& record) {
  const bool is_whole = record.ended && record.status && record.status->signal == 0;
  return is_whole && record.work && record.work->session_us >= kShortSession ? record.work->collectives : 0;
}

}  // namespace

std::optional<double> waited_part(const ProcessRecord& record) {
  if (!record.work || record.work->session_us == 0) return std::nullopt;
  return std::min(1.0, static_cast<double>(record.work->waited_us) / static_cast<double>(record.work->session_us));
}

std::optional<Straggler> straggler_of(const ProcessLedger& processes) {
  std::uint64_t most = 0;
  for (const auto& [process, record] : processes.all()) most = std::max(most, compared_work(record));
  if (most == 0) return std::nullopt;
  Straggler least{.waited = 2};
  double sum = 0;
  int count = 0;
  for (const auto& [process, record] : processes.all()) {
    const auto part = waited_part(record);
    if (!part || compared_work(record) < most - most / 10) continue;
    sum += *part;
    ++count;
    if (*part < least.waited) least = {.who = &record, .waited = *part};
  }
  if (count < 2) return std::nullopt;
  least.others_waited = (sum - least.waited) / (count - 1);
  if (least.others_waited - least.waited < kClearly) return std::nullopt;
  return least;
}

std::string summary_text(const JobSummary& summary) {
  const auto& all = summary.processes.all();
  std::set<std::string> hosts;
  for (const auto& [process, record] : all) hosts.insert(record.host);
  const std::size_t count = all.size() + summary.processes.forgotten();
  std::string text = "summary: exit code " + std::to_string(summary.exit_code) + " after " +
                     seconds_text(as_seconds(summary.duration)) + ", with " + std::to_string(count) +
                     (count == 1 ? " process" : " processes") + " on " +
                     count_text(static_cast<std::int64_t>(hosts.size()), "host");
  if (summary.restarts > 0) text += ", " + count_text(summary.restarts, "restart");
  if (all.empty()) return text;
  text += table_of(summary.processes);
  if (count > kMostRows) {
    text += "\n  and " + std::to_string(count - kMostRows) + " more, of which summary.json tells (--log-dir)";
  }
  if (const auto straggler = straggler_of(summary.processes)) {
    text += "\nThe others waited most for rank " + rank_of(*straggler->who) + " on host " + straggler->who->host +
            ": for " + percent_text(straggler->others_waited) + " of their sessions, and it for " +
            percent_text(straggler->waited) + " of its own";
  }
  return text;
}

}  // namespace hvd::launcher
