#pragma once

#include <string>
#include <vector>

#include "launcher/job/job.h"

namespace hvd::launcher {

// A job whose ranks are fixed.
//
//   starting -> running -> finishing -> done                     all ranks exit 0
//   starting | running -> grace -> terminating -> killing        a rank or a host failed
//   starting | running -> interrupted -> killing                 the user's SIGTERM
//   running -> interrupted -> terminating -> killing             the job's time is up: SIGABRT comes first
//   starting | running -> interrupted -> terminating -> killing  the user's SIGINT (Ctrl-C) or SIGHUP, which come first
// and from each of the latter to finishing as soon as no rank is left.
class StaticJob final : public Job {
 public:
  StaticJob(const std::vector<HostAssignment>& hosts, const JobTimings& timings, TimePoint now);

  JobActions agent_ready(int agent, TimePoint now) override;
  JobActions agent_lost(int agent, const std::string& reason, TimePoint now) override;
  JobActions process_started(Incarnation process, int pid, TimePoint now) override;
  JobActions process_not_started(Incarnation process, int code, const std::string& reason, TimePoint now) override;
  JobActions process_ended(Incarnation process, const ExitStatus& status, TimePoint now) override;

 private:
  void slot_failed(int slot, const ExitStatus& status, TimePoint now, JobActions& out);
};

}  // namespace hvd::launcher
