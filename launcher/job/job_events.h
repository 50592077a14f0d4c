#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "launcher/job/failures.h"
#include "launcher/job/job_status.h"
#include "launcher/job/process_ledger.h"
#include "launcher/plan/launch_config.h"

namespace hvd::launcher {

// What happens to a job, for programs: an object of JSON a line, under names that stay (docs/monitoring.md has the
// table). It has what is passed to it: no variable of an environment, and no secret. Owned by the JobDriver. Pure, but
// for what it writes to.
class JobEvents {
 public:
  // `line` ends in a newline.
  using Write = std::function<void(const std::string& line)>;
  using Clock = std::function<std::chrono::system_clock::time_point()>;

  // `job`: the process id of this horovodrun. Without `write` nothing is said.
  JobEvents(int job, Write write, Clock clock = std::chrono::system_clock::now);

  // `hosts`: of a static job; those of an elastic one are added.
  void job_started(const LaunchConfig& config, const std::vector<HostAssignment>& hosts);
  // To an elastic job, which then opens it.
  void host_added(const std::string& host);
  // Its agent has answered.
  void host_ready(const std::string& host);
  // An elastic job does not need it any more.
  void host_removed(const std::string& host);
  void host_lost(const std::string& host, const std::string& why);
  // `change`: kHostAdded, kHostRemoved, or both: the ranks of an elastic job are told.
  void hosts_changed(int change);
  void rank_started(const ProcessRecord& record);
  // Its times are not looked at.
  void rank_not_started(const ProcessRecord& record, int exit_code, const std::string& why);
  // Requires: it has ended.
  void rank_ended(const ProcessRecord& record);
  // Others have waited for it for so long that the stall check warned.
  void rank_stalled(const ProcessRecord& record);
  void round_began(const RoundRecord& round, const std::vector<ProcessRecord>& ranks);
  // The last that is said: what happens afterwards is not. `failure`: the first, or null.
  void job_ended(int exit_code, SteadyClock::duration duration, int restarts, const JobFailure* failure);

 private:
  class Line;

  const int job_;
  Write write_;
  const Clock clock_;
};

}  // namespace hvd::launcher
