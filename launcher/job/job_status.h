#pragma once

#include <chrono>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "launcher/job/roster.h"
#include "runtime/base/deadline.h"

namespace hvd::launcher {

// A round of an elastic job, and what ended the one before it.
struct RoundRecord {
  int number = 0;
  int ranks = 0;
  TimePoint began;
  std::string why;
};

// What `horovodrun --status` shows of a running job, as JSON, under names that stay. Pure.
struct JobStatus {
  int pid;
  const std::vector<std::string>& command;
  std::string state;  // in words
  bool is_elastic;
  bool output_waits;  // nobody reads our output, so our agents are not heard, and the rest may be old
  const Roster& roster;
  const std::set<int>& spares;            // slots
  const std::deque<RoundRecord>& rounds;  // the latest ones, oldest first
  TimePoint now;
};
std::string status_json(const JobStatus& status);

}  // namespace hvd::launcher
