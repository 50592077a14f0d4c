#include "starters/channel.h"

#include <sys/stat.h>

#include <utility>

#include "runtime/base/log.h"
#include "starters/pmi_channel.h"
#include "starters/pmix_channel.h"
#include "starters/shared_folder.h"

namespace hvd::starters {
namespace {

// A program in between, or Python's subprocess, may have closed it: then the number is nobody's, or another's.
bool is_socket(int fd) {
  struct stat info{};
  return fd >= 0 && fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
}

}  // namespace

bool is_on_one_host(const config::RuntimeConfig& config) {
  return config.has_starters_local_numbers && config.local_size == config.size;
}

std::string job_name(const config::RuntimeConfig& config, const transport::HostIdentity& host) {
  const std::string& job = config.started_by->job;
  return is_on_one_host(config) ? job + "|" + host.boot_id + "|" + host.net_namespace : job;
}

Result<std::unique_ptr<Channel>> open_channel(const config::RuntimeConfig& config, Answers answers,
                                              const Deadline& deadline, int wake_fd) {
  const config::StartedBy& started = *config.started_by;
  if (is_socket(started.pmi_fd) && !started.speaks_pmi2) {
    return std::unique_ptr<Channel>(std::make_unique<PmiChannel>(started.pmi_fd));
  }
  std::string why_folder;
  if (!config.shared_dir_is_chosen) {
    if (is_socket(started.pmi_fd) && !mpi_is_in_charge()) {
      return std::unique_ptr<Channel>(std::make_unique<Pmi2Channel>(started.pmi_fd, config.rank, started.pmi_job));
    }
    if (started.speaks_pmix) {
      HVD_ASSIGN_OR_RETURN(auto channel, PmixChannel::open_library(config.rank, deadline, wake_fd));
      if (channel != nullptr) return std::unique_ptr<Channel>(std::move(channel));
      why_folder = " (PMIx does not answer this rank; those that it answers meet there, and never look here)";
    }
  }
  const std::string who = started.program + " started this process as rank " + std::to_string(config.rank) + " of " +
                          std::to_string(config.size) + ", ";
  const std::string remedy = "; or start the ranks with horovodrun, or say where they meet (docs/launching.md)";
  if (started.job.empty()) {
    return Status::precondition(
        who +
        (started.pmi_fd >= 0 ? "but PMI_FD=" + std::to_string(started.pmi_fd) + " is no socket here, and " : "but ") +
        "no variable tells its job from others; set HOROVOD_JOB_ID to something that no other job has" + remedy);
  }
  if (config.shared_dir.empty()) {
    return Status::precondition(who +
                                "but neither HOME nor HOROVOD_SHARED_DIR says where its ranks may find each other; set "
                                "HOROVOD_SHARED_DIR to a folder that all hosts share" +
                                remedy);
  }
  const std::string job = job_name(config, transport::HostIdentity::of_this_process());
  return std::unique_ptr<Channel>(
      std::make_unique<SharedFolder>(config.shared_dir, job, std::move(answers), std::move(why_folder)));
}

}  // namespace hvd::starters
