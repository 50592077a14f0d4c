#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

// What mpirun, srun and their like say to the processes that they start, in variables of their own. Pure.
namespace hvd::config {

// One of several processes of a starter that is not horovodrun, as its variables have it. A value.
struct StartedBy {
  std::string program;        // "mpirun (Open MPI)"
  std::string rank_variable;  // whose value `rank` is, for messages
  std::string size_variable;  // and `size`
  std::string job;            // the same in all processes of this job and of no other; "": it says none
  std::string host;           // its name of this host; "": it says none
  int rank = 0;
  int size = 1;
  int local_rank = -1;  // -1: it does not say; else local_size is known, too
  int local_size = -1;
  int pmi_fd = -1;           // where it speaks PMI-1 or PMI-2 (docs/design/other-starters.md); -1: nowhere
  bool speaks_pmi2 = false;  // there
  std::string pmi_job;       // and its name of the job
  bool speaks_pmix = false;  // with libpmix

  bool operator==(const StartedBy&) const = default;
};

// Nothing when no starter's variables are there, or they speak of one process. Of two starters the inner one counts,
// where one can be told; else it is an error that names the variables of both, as is a set that is not complete.
Result<std::optional<StartedBy>> find_starter(const EnvReader& env);

// Numbers as Slurm writes them, "2(x3),1": 2, 2, 2, 1. Each from 1 to `max_value`, at most `max_count` of them.
Result<std::vector<int>> parse_repeated_counts(std::string_view text, int max_value, std::size_t max_count);

}  // namespace hvd::config
