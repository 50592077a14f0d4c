#include "runtime/config/starters.h"

#include <cstdint>

#include "runtime/base/split.h"
#include "runtime/config/parse_value.h"

namespace hvd::config {

namespace {

constexpr int kMaxTasks = 1 << 20;
constexpr std::size_t kMaxNodes = 65'536;

// The variables of one starter. `own`: only its tasks have it. Two need care: a batch shell has SLURM_NTASKS, but only
// a task of srun has the step's; WORLD_SIZE is a common name, but TORCHELASTIC_RUN_ID is torchrun's own.
struct StarterRow {
  std::string_view program;
  std::string_view own;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
  std::string_view host;
  // Of these, those that are set make the name of the job; without the first one there is none. MVAPICH has no such:
  // MPISPAWN_ID is the node's, MPISPAWN_MPIRUN_HOST differs where the nodes start each other, and what is left, a
  // process id, may be another job's as well.
  std::string_view job[4];
};

// The inner ones first: torchrun runs inside the tasks of others, and mpirun and mpiexec start their helpers by srun.
// clang-format off
constexpr StarterRow kStarters[] = {
    {"torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "",
     {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_HOSTNAME",
     {"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_orte_hnp_uri", ""}},
    {"mpirun (MVAPICH)", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", "", {"", "", "", ""}},
    {"mpiexec (PMI)", "PMI_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "",
     {"PMI_JOBID", "", "", ""}},
    {"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE", "", {"LSB_JOBID", "JSM_JSRUN_ID", "PMIX_NAMESPACE", ""}},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "SLURMD_NODENAME",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT"}},
};
// clang-format on

constexpr std::string_view kPmi = "PMI_SIZE";
constexpr std::string_view kSlurm = "SLURM_STEP_NUM_TASKS";

std::string value_of(const EnvReader& env, std::string_view name) {
  return name.empty() ? std::string() : env.get(name).value_or("");
}

std::string equation(const EnvReader& env, std::string_view name) {
  return std::string(name) + "=" + value_of(env, name);
}

// With --mpi=pmi2, Slurm sets what MPICH's mpiexec does, and speaks something else.
bool is_of_slurm(const EnvReader& env) {
  return env.get(kPmi) && env.get("SLURM_PROCID") && !env.get("MPI_LOCALNRANKS") &&
         value_of(env, "PMI_RANK") == value_of(env, "SLURM_PROCID") &&
         value_of(env, "PMI_SIZE") == value_of(env, kSlurm);
}

Result<int> number(const EnvReader& env, const StarterRow& row, std::string_view name, int min, int max) {
  const auto text = env.get(name);
  if (!text) {
    return Status::invalid_argument(equation(env, row.own) + " says that " + std::string(row.program) +
                                    " started this process, but " + std::string(name) + " is not set");
  }
  const Result<std::int64_t> value = parse_integer(*text, min, max);
  if (!value.is_ok()) return value.status().annotate(name);
  return static_cast<int>(value.value());
}

// Where the starter says only how many tasks each node has.
int tasks_of_own_node(const EnvReader& env) {
  const auto counts = parse_repeated_counts(value_of(env, "SLURM_STEP_TASKS_PER_NODE"), kMaxTasks, kMaxNodes);
  const auto node = parse_integer(value_of(env, "SLURM_NODEID"), 0, kMaxNodes - 1);
  if (!counts.is_ok() || !node.is_ok() || static_cast<std::size_t>(node.value()) >= counts.value().size()) return -1;
  return counts.value()[static_cast<std::size_t>(node.value())];
}

// What does not fit is left out: it only helps to choose addresses and local ranks, which can be found otherwise.
void add_local_numbers(const EnvReader& env, const StarterRow& row, StartedBy& found) {
  const auto rank = parse_integer(value_of(env, row.local_rank), 0, found.size - 1);
  const auto size = row.own == kSlurm ? Result<std::int64_t>(tasks_of_own_node(env))
                                      : parse_integer(value_of(env, row.local_size), 1, found.size);
  if (!rank.is_ok() || !size.is_ok() || rank.value() >= size.value() || size.value() > found.size) return;
  found.local_rank = static_cast<int>(rank.value());
  found.local_size = static_cast<int>(size.value());
}

std::string job_of(const EnvReader& env, const StarterRow& row) {
  if (value_of(env, row.job[0]).empty()) return "";
  std::string job(row.program);
  for (const std::string_view name : row.job) {
    if (!name.empty()) job += "|" + equation(env, name);
  }
  return job;
}

// Where the starter has a key-value space for this very process. A torchrun inside one of mpirun's tasks has not.
void add_pmi(const EnvReader& env, const StarterRow& row, StartedBy& found) {
  found.speaks_pmi2 = row.own == kSlurm && is_of_slurm(env);
  if (row.own == kPmi || found.speaks_pmi2) {
    const auto fd = parse_integer(value_of(env, "PMI_FD"), 0, 1 << 20);
    if (fd.is_ok()) found.pmi_fd = static_cast<int>(fd.value());
    found.pmi_job = found.speaks_pmi2 ? value_of(env, "PMI_JOBID") : "";
  }
  const bool is_torchrun = row.own == kStarters[0].own;
  found.speaks_pmix =
      !is_torchrun && env.get("PMIX_NAMESPACE") && value_of(env, "PMIX_RANK") == std::to_string(found.rank);
}

Result<StartedBy> read(const EnvReader& env, const StarterRow& row) {
  StartedBy found;
  found.program = row.program;
  found.rank_variable = row.rank;
  found.size_variable = row.size;
  HVD_ASSIGN_OR_RETURN(found.size, number(env, row, row.size, 1, kMaxTasks));
  if (found.size == 1) return found;
  HVD_ASSIGN_OR_RETURN(found.rank, number(env, row, row.rank, 0, kMaxTasks - 1));
  if (found.rank >= found.size) {
    return Status::invalid_argument(equation(env, row.rank) + " must be less than " + equation(env, row.size));
  }
  add_local_numbers(env, row, found);
  found.host = value_of(env, row.host);
  found.job = job_of(env, row);
  add_pmi(env, row, found);
  return found;
}

// Two starters that both may have started this process, and give it different places.
Status check_agreement(const EnvReader& env, const StartedBy& inner, const StarterRow& other_row) {
  if (other_row.own == kSlurm) return Status::ok();  // it started the helper that started this process
  const Result<StartedBy> other = read(env, other_row);
  if (!other.is_ok() || other.value().size == 1) return Status::ok();
  const bool same = other.value().rank == inner.rank && other.value().size == inner.size;
  const bool is_around = inner.program == kStarters[0].program && inner.size >= other.value().size;
  if (same || is_around) return Status::ok();
  return Status::invalid_argument("two starters say different things: " + equation(env, inner.rank_variable) + " and " +
                                  equation(env, inner.size_variable) + " of " + inner.program + ", " +
                                  equation(env, other_row.rank) + " and " + equation(env, other_row.size) + " of " +
                                  std::string(other_row.program) +
                                  "; unset the variables of the one that did not start this process (env -u " +
                                  std::string(other_row.own) + " python ...)");
}

// PMIx alone says who a process is, but not of how many.
Status check_pmix(const EnvReader& env) {
  if (!env.get("PMIX_RANK") || !env.get("PMIX_NAMESPACE")) return Status::ok();
  return Status::invalid_argument(
      equation(env, "PMIX_RANK") +
      " says that something that speaks PMIx started this process, but no variable says as one of how many; start it "
      "with horovodrun, mpirun or srun, or set HOROVOD_RANK, HOROVOD_SIZE and where to meet (docs/launching.md); "
      "HOROVOD_IGNORE_STARTER=1 makes it a world of size 1");
}

}  // namespace

Result<std::optional<StartedBy>> find_starter(const EnvReader& env) {
  std::optional<StartedBy> inner;
  for (const StarterRow& row : kStarters) {
    if (!env.get(row.own) || (row.own == kPmi && is_of_slurm(env))) continue;
    if (inner) {
      HVD_RETURN_IF_ERROR(check_agreement(env, *inner, row));
      continue;
    }
    HVD_ASSIGN_OR_RETURN(inner, read(env, row));
  }
  if (!inner) HVD_RETURN_IF_ERROR(check_pmix(env));
  if (inner && inner->size == 1) inner.reset();
  return inner;
}

Result<std::vector<int>> parse_repeated_counts(std::string_view text, int max_value, std::size_t max_count) {
  std::vector<int> counts;
  const auto wrong = [&](std::string_view part) {
    return Status::invalid_argument(quoted(part) + " is not N or N(xTIMES) with N from 1 to " +
                                    std::to_string(max_value) + " and at most " + std::to_string(max_count) +
                                    " numbers in all");
  };
  for (const std::string_view part : split(text, ',')) {
    const std::size_t open = part.find("(x");
    std::int64_t times = 1;
    if (open != std::string_view::npos) {
      if (!part.ends_with(')')) return wrong(part);
      const auto repeated = parse_integer(part.substr(open + 2, part.size() - open - 3), 1, 1 << 30);
      if (!repeated.is_ok()) return wrong(part);
      times = repeated.value();
    }
    const auto value = parse_integer(part.substr(0, open), 1, max_value);
    if (!value.is_ok() || static_cast<std::uint64_t>(times) > max_count - counts.size()) return wrong(part);
    counts.insert(counts.end(), static_cast<std::size_t>(times), static_cast<int>(value.value()));
  }
  return counts;
}

}  // namespace hvd::config
