#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"
#include "runtime/config/starters.h"

namespace hvd::config {

// Everything a rank learns from its environment, parsed and checked once, when a session begins; immutable afterwards.
// The defaults here are those of option_table.cc (a test compares them). docs/env.md describes every variable.
struct RuntimeConfig {
  // The rank's place. 0 <= rank < size, and so for local and cross.
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  bool has_local_numbers = false;           // some of the last four are set, so that none of them is only a default
  bool has_starters_local_numbers = false;  // local_rank and local_size are another starter's; it has no cross numbers
  std::string hostname = "localhost";

  // How to reach the job. Without an address the process is a world of size 1; address and port come together.
  std::string rendezvous_addr;
  int rendezvous_port = 0;
  std::string iface;  // "": the transport chooses
  PortRange ports;    // to listen on
  bool tls = false;
  int sockets_per_peer = 0;  // 0: found out by trying
  std::string agent_socket;
  std::string secret_file;
  // One of several processes that something else than horovodrun started, and that must find each other themselves.
  std::optional<StartedBy> started_by;
  std::string shared_dir;             // where they may; "": nowhere
  bool shared_dir_is_chosen = false;  // by the user
  std::string job_id;                 // instead of the starter's name of the job
  bool is_on_several_hosts = false;   // a loopback address of the rendezvous does not mean that all ranks are here
  std::chrono::seconds gloo_timeout{30};
  std::chrono::seconds no_progress_limit{600};          // gloo_timeout where that was given
  std::chrono::milliseconds nccl_start_limit{120'000};  // for its members to meet; half of gloo_timeout likewise
  std::chrono::seconds start_timeout{0};                // as given; 0: not
  std::chrono::seconds join_timeout{0};  // made of these two: for the others to reach init(); 0: as gloo_timeout
  bool ignore_starter = false;
  // Ranks may come and go: this one joins also when it is the only one, and who it is may change with every session.
  bool elastic = false;
  std::chrono::seconds elastic_timeout{600};  // part of join_timeout then
  std::uint64_t progress = 0;                 // not of the environment: see rendezvous::JoinBody

  // Batching.
  std::int64_t fusion_threshold = 134'217'728;                          // bytes; 0: no fusion
  bool fusion_threshold_is_chosen = false;                              // by the user
  std::optional<std::chrono::duration<double, std::milli>> cycle_time;  // unset: no batching delay
  std::int64_t idle_output_bytes = 1'073'741'824;                       // memory kept for the results to come
  std::int64_t cache_capacity = 1024;                                   // entries; 0: no cache
  bool disable_group_fusion = false;
  bool deterministic = false;
  bool batch_copies = true;       // on GPUs
  bool async_completion = false;  // on GPUs
  bool shared_memory = true;
  std::optional<bool> shm_cma;                 // unset: where it pays
  std::optional<bool> hierarchical_allreduce;  // unset: where it pays
  std::optional<bool> hierarchical_allgather;  // the same
  bool torus_allreduce = false;                // allreduces as if hierarchical_allreduce were set, but for Adasum

  // Looks for better values of fusion_threshold and cycle_time, unless the user has chosen them.
  bool autotune = false;
  std::string autotune_log;  // "": none
  int autotune_warmup_samples = 3;
  int autotune_steps_per_sample = 10;
  int autotune_max_samples = 20;
  double autotune_noise = 0.8;

  // What the user sees.
  bool stall_check_disable = false;
  std::chrono::seconds stall_check_time{60};    // 0: disabled too
  std::chrono::seconds stall_shutdown_time{0};  // 0: never; otherwise >= stall_check_time
  LogLevel log_level = LogLevel::kWarning;
  bool log_hide_time = false;
  std::string timeline;  // "": none; "DYNAMIC": a call starts it
  bool timeline_mark_cycles = false;
  bool disable_nvtx_ranges = false;

  std::string nccl_library;  // "": searched for
  bool nccl_register = true;
  bool nccl_shares_gpu = false;              // NCCL_MULTI_RANK_GPU_ENABLE
  int nccl_ranks_per_id = 256;               // no option: less is for tests
  std::string cuda_driver = "libcuda.so.1";  // as dlopen(3) finds it

  std::vector<int> thread_affinity;  // core ids, one per local rank; empty: no pinning

  std::string failpoints;  // see runtime/base/failpoint.h

  // Things worth telling the user once, and so on rank 0 alone, or on the first rank of a host what is different there:
  // unknown HOROVOD_* names, values that were ignored.
  std::vector<std::string> warnings;
  std::vector<std::string> errors;  // the same of those that the log calls errors
};

// Reads every variable of the option table. A bad or inconsistent value is kInvalidArgument naming variable, value and
// what was expected. A variable set to "" counts as not set.
Result<RuntimeConfig> load_runtime_config(const EnvReader& env);

}  // namespace hvd::config
