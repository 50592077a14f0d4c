#include "launcher/job/job_main.h"

#include <cstdint>
#include <utility>

#include "launcher/job/job_driver.h"
#include "launcher/process/descriptors.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/signal_watcher.h"

namespace hvd::launcher {

int job_main(JobPlan plan) {
  const std::uint64_t ignored_from_the_start = ignored_signals();
  ignore_io_signals();
  // Three pipes for each agent, and two files for each rank when asked for.
  const std::size_t files = plan.config.output_filename ? 2 * static_cast<std::size_t>(plan.config.num_proc) : 0;
  raise_descriptor_limit(3 * plan.hosts.size() + files);
  MainLoop loop;
  JobDriver driver(loop, std::move(plan), ignored_from_the_start);
  return driver.run();
}

}  // namespace hvd::launcher
