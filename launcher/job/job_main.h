#pragma once

#include "launcher/plan/job_plan.h"

namespace hvd::launcher {

// Runs the job and returns the exit code of the program.
int job_main(JobPlan plan);

}  // namespace hvd::launcher
