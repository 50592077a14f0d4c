#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/failures.h"
#include "launcher/job/process_ledger.h"
#include "runtime/base/deadline.h"

namespace hvd::launcher {

// The end of a job: what is written to --log-dir, and what --summary shows. A view.
struct JobSummary {
  const std::vector<std::string>& command;
  int num_proc;
  std::chrono::system_clock::time_point started;
  SteadyClock::duration duration;
  int exit_code;
  int restarts;  // rounds of an elastic job after the first
  const Failures& failures;
  const std::vector<std::string>& last_stderr_lines;  // of the rank that failed first
  const ProcessLedger& processes;
};

// For programs, under names that stay: docs/design/launcher.md. Pure.
std::string summary_json(const JobSummary& summary);

// For people: a line about the job, a table of its processes, and who was waited for. At most kMostRows of them: those
// that others waited for most, and those that failed, are among them. Pure.
inline constexpr std::size_t kMostRows = 32;
std::string summary_text(const JobSummary& summary);

// For how much of its sessions a process waited for others, from 0 to 1. Nothing of one that has not said so.
std::optional<double> waited_part(const ProcessRecord& record);

// A process for which the others waited, clearly longer than it waited for them.
struct Straggler {
  const ProcessRecord* who = nullptr;
  double waited = 0;         // by it for others, as waited_part()
  double others_waited = 0;  // by the others, on average
};
// Which kept the others waiting most; nothing where there is no such one: fewer than two can be compared, or they
// waited about as long as each other. Those are compared that have said all, after sessions of a second or more, and
// took part in nine of ten collectives of the busiest: who has other operations waits for others. Pure.
std::optional<Straggler> straggler_of(const ProcessLedger& processes);

}  // namespace hvd::launcher
