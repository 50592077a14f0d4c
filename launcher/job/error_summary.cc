#include "launcher/job/error_summary.h"

#include <signal.h>

namespace hvd::launcher {

std::string error_summary(const StaticJob& job, const std::vector<std::string>& last_stderr_lines,
                          bool are_in_sight) {
  if (!job.failure() || job.failure()->rank < 0) return "";
  const JobFailure& first = *job.failure();
  std::string text = "the job failed: rank " + std::to_string(first.rank) + " on host " + first.host + " (pid " +
                     std::to_string(first.pid) + ") " + first.what + " first";
  if (const auto left = job.left_before_failure()) {
    text += ", after rank " + std::to_string(*left) + " had left the job (unequal numbers of steps? see hvd.join())";
  }
  // Nobody has been signalled by us before the first failure.
  if (first.exit_code == 128 + SIGKILL) {
    text += " (when memory runs out, the kernel kills with SIGKILL: see `dmesg` there, and the memory limit of the "
            "container or batch job)";
  }
  if (last_stderr_lines.empty()) {
    text += "; it wrote nothing to stderr";
  } else if (are_in_sight) {
    text += "; its last lines on stderr stand above, behind [" + std::to_string(first.rank) + "]<stderr>:";
  } else {
    text += "; its last lines on stderr:";
    for (const std::string& line : last_stderr_lines) text += "\n    " + line;
  }
  for (const std::string& later : job.later_failures()) text += "\nAfter that, " + later;
  text += "\nProcess name: " + std::to_string(first.rank) + "\nExit code: " + std::to_string(first.exit_code);
  return text;
}

}  // namespace hvd::launcher
