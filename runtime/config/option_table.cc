#include "runtime/config/option_table.h"

#include <iterator>
#include <utility>

namespace hvd::config {

namespace {

using C = RuntimeConfig;
using K = OptionKind;
using O = Option;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kIntMax = std::numeric_limits<int>::max();
constexpr double kMaxRank = 1 << 20;
constexpr double kMaxSeconds = 31'536'000;  // a year: above it chrono arithmetic would need care
constexpr double kMaxBytes = 1LL << 40;
constexpr double kMaxEntries = 1 << 24;
constexpr std::monostate kNoField;

// clang-format off
constexpr OptionRow kRows[] = {
    {O::kRank, "HOROVOD_RANK", "0", K::kInteger, &C::rank, "rank of this process in the job", 0, kMaxRank - 1},
    {O::kSize, "HOROVOD_SIZE", "1", K::kInteger, &C::size, "number of ranks of the job", 1, kMaxRank},
    {O::kLocalRank, "HOROVOD_LOCAL_RANK", "0", K::kInteger, &C::local_rank, "rank among the ranks of the same host", 0,
     kMaxRank - 1},
    {O::kLocalSize, "HOROVOD_LOCAL_SIZE", "1", K::kInteger, &C::local_size,
     "number of ranks on this host", 1, kMaxRank},
    {O::kCrossRank, "HOROVOD_CROSS_RANK", "0", K::kInteger, &C::cross_rank,
     "index of this host among the hosts that have this local rank", 0, kMaxRank - 1},
    {O::kCrossSize, "HOROVOD_CROSS_SIZE", "1", K::kInteger, &C::cross_size,
     "number of hosts that have this local rank", 1, kMaxRank},
    {O::kHostname, "HOROVOD_HOSTNAME", "localhost", K::kText, &C::hostname,
     "name of this host as the launcher listed it"},
    {O::kGlooRendezvousAddr, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "", K::kText, &C::rendezvous_addr,
     "name or address of the rendezvous store; without it the process is a world of size 1"},
    {O::kGlooRendezvousPort, "HOROVOD_GLOO_RENDEZVOUS_PORT", "", K::kInteger, &C::rendezvous_port,
     "port of the rendezvous store", 1, 65535},
    {O::kGlooIface, "HOROVOD_GLOO_IFACE", "", K::kText, &C::iface,
     "network interface for connections; unset: chosen by route"},
    {O::kPortRange, "HOROVOD_PORT_RANGE", "", K::kPorts, &C::ports,
     "ports that a rank may listen on for the others, `40000-40099`: one for each rank of a host, and one for the rendezvous "
     "where horovodrun or rank 0 opens it; unset: any"},
    {O::kTls, "HOROVOD_TLS", "0", K::kBool, &C::tls,
     "every TCP connection between ranks, and to the rendezvous, is TLS 1.3; the same in all processes of a job; --tls sets "
     "it (docs/security.md)"},
    {O::kSocketsPerPeer, "HOROVOD_SOCKETS_PER_PEER", "0", K::kInteger, &C::sockets_per_peer,
     "TCP connections over which the large messages of two ranks go; more than one pays where the network bounds each of them; "
     "0: one, and in jobs on several hosts as many as their large allreduces turn out to be faster with "
     "(docs/design/transport.md); on all ranks 0 or on none", 0, 8},
    {O::kGlooTimeoutSeconds, "HOROVOD_GLOO_TIMEOUT_SECONDS", "30", K::kInteger, &C::gloo_timeout,
     "how long a rank waits for the others to join or connect, and, if set (else 600 s), how long a running collective may "
     "make no progress, and rank 0 be silent while an operation waits; 0 stands for the default", 0, kMaxSeconds},
    {O::kStartTimeout, "HOROVOD_START_TIMEOUT", "", K::kInteger, &C::start_timeout,
     "seconds until every host must have answered the launcher (unset: 30), and that ranks wait for each other in "
     "init() (unset: HOROVOD_GLOO_TIMEOUT_SECONDS when that is set, else 600); a smaller number is the time of hosts alone: "
     "ranks wait for each other for at least HOROVOD_GLOO_TIMEOUT_SECONDS, which is 30 unless it is set", 1, kMaxSeconds},
    {O::kAgent, "HOROVOD_AGENT", "", K::kText, &C::agent_socket,
     "abstract socket of this process's agent, which says who the process is (slot, incarnation, token) and gives the "
     "job's secret; set by the agent"},
    {O::kSecretFile, "HOROVOD_SECRET_FILE", "", K::kText, &C::secret_file,
     "file (mode 0600) that holds the job secret, for ranks without an agent that are told where to meet"},
    {O::kSharedDir, "HOROVOD_SHARED_DIR", "", K::kText, &C::shared_dir,
     "folder (mode 0700) where processes that mpirun, srun, jsrun or torchrun started find rank 0, the same on all hosts; "
     "unset: by PMI-2 or PMIx where the starter has that, else .horovod/jobs in the home directory (docs/launching.md)"},
    {O::kJobId, "HOROVOD_JOB_ID", "", K::kText, &C::job_id,
     "what tells this job from others in that folder, the same in all its processes; unset: what the starter calls it"},
    {O::kController, "HOROVOD_CONTROLLER", "gloo", K::kChoice, kNoField,
     "`gloo` is the only controller; `mpi` is an error, but under horovodrun, which sets `gloo` and says so; other words are errors there, too", -kInf, kInf, "gloo"},
    {O::kCpuOperations, "HOROVOD_CPU_OPERATIONS", "gloo", K::kChoice, kNoField,
     "`gloo` is the only choice for CPU tensors; `mpi` and `ccl` are errors, but under horovodrun, as above", -kInf, kInf, "gloo"},
    {O::kIgnoreStarter, "HOROVOD_IGNORE_STARTER", "0", K::kBool, &C::ignore_starter,
     "when mpirun, mpiexec, srun, jsrun or torchrun started this process as one of several, each is a world of size 1 all "
     "the same"},
    {O::kElastic, "HOROVOD_ELASTIC", "0", K::kBool, &C::elastic,
     "the job is elastic: ranks may come and go; set by the launcher"},
    {O::kFusionThreshold, "HOROVOD_FUSION_THRESHOLD", "134217728", K::kBytes, &C::fusion_threshold,
     "largest batch of fused tensors in bytes (`64MB` works too); 0 disables fusion", 0, kMaxBytes},
    {O::kIdleOutputBytes, "HOROVOD_IDLE_OUTPUT_BYTES", "1073741824", K::kBytes, &C::idle_output_bytes,
     "most memory of results that are gone that a rank keeps for the next ones, for 10 seconds; 0: none", 0, kMaxBytes},
    {O::kCycleTime, "HOROVOD_CYCLE_TIME", "", K::kReal, &C::cycle_time,
     "longest delay in ms that may be spent on collecting a larger batch; unset: none", 0, 3'600'000},
    {O::kCacheCapacity, "HOROVOD_CACHE_CAPACITY", "1024", K::kInteger, &C::cache_capacity,
     "entries of the response cache, of which a group takes one; 0 disables it", 0, kMaxEntries},
    {O::kDisableGroupFusion, "HOROVOD_DISABLE_GROUP_FUSION", "0", K::kBool, &C::disable_group_fusion,
     "never fuse tensors of a group with others"},
    {O::kDynamicProcessSets, "HOROVOD_DYNAMIC_PROCESS_SETS", "0", K::kBool, kNoField,
     "allow process sets to be added and removed after init"},
    {O::kDeterministic, "HOROVOD_DETERMINISTIC", "0", K::kBool, &C::deterministic,
     "bitwise equal results from run to run: what is fused with what has no influence on them"},
    {O::kShm, "HOROVOD_SHM", "1", K::kBool, &C::shared_memory,
     "ranks of one host move data through shared memory; 0 on one of them: none of that host's do"},
    {O::kShmCma, "HOROVOD_SHM_CMA", "", K::kBool, &C::shm_cma,
     "allreduces of private tensors in shared memory read these in the other ranks' processes (process_vm_readv); unset: "
     "those of 8 MiB and more whose tensors lie in huge pages on all ranks; 0 on one of them: none; 1: all above 8 KiB, "
     "also where that is slower; never where the system forbids it, as Ubuntu does by default (ptrace_scope 1), and never "
     "in jobs on several hosts (docs/design/shared-memory.md)"},
    {O::kHierarchicalAllreduce, "HOROVOD_HIERARCHICAL_ALLREDUCE", "", K::kBool, &C::hierarchical_allreduce,
     "allreduce and reducescatter inside hosts first, then between hosts; unset: from 64 KiB on, where a host has several "
     "ranks; 0: broadcasts go flat, too; tensors on GPUs: 1 alone"},
    {O::kHierarchicalAllgather, "HOROVOD_HIERARCHICAL_ALLGATHER", "", K::kBool, &C::hierarchical_allgather,
     "allgather host by host; unset: from 64 KiB on, where a host has several ranks"},
    {O::kTorusAllreduce, "HOROVOD_TORUS_ALLREDUCE", "0", K::kBool, &C::torus_allreduce,
     "allreduce and reducescatter in two dimensions: inside hosts, then between the ranks of all hosts that have the same slice. "
     "That is the way of HOROVOD_HIERARCHICAL_ALLREDUCE=1, which this stands for whatever that is, but not for Adasum; NCCL "
     "goes its own ways"},
    {O::kAutotune, "HOROVOD_AUTOTUNE", "0", K::kBool, &C::autotune,
     "look for the best HOROVOD_FUSION_THRESHOLD and HOROVOD_CYCLE_TIME while the job runs; one that is set stays"},
    {O::kAutotuneLog, "HOROVOD_AUTOTUNE_LOG", "", K::kText, &C::autotune_log,
     "CSV file of the tuning steps, written by rank 0"},
    {O::kAutotuneWarmupSamples, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "3", K::kInteger, &C::autotune_warmup_samples,
     "samples thrown away before tuning", 0, kIntMax},
    {O::kAutotuneStepsPerSample, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "10", K::kInteger, &C::autotune_steps_per_sample,
     "steps per sample, of which five make a score; 0 counts as 1", 0, kIntMax},
    {O::kAutotuneBayesOptMaxSamples, "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "20", K::kInteger, &C::autotune_max_samples,
     "scores after which tuning ends; 0: nothing is tuned", 0, kIntMax},
    {O::kAutotuneGaussianProcessNoise, "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.8", K::kReal, &C::autotune_noise,
     "noise of a score, 0 to 1: its variance by that of all scores", 0, 1},
    {O::kTimeline, "HOROVOD_TIMELINE", "", K::kText, &C::timeline,
     "file for the timeline of rank 0, or `DYNAMIC`: only `start_timeline` starts it"},
    {O::kTimelineMarkCycles, "HOROVOD_TIMELINE_MARK_CYCLES", "0", K::kBool, &C::timeline_mark_cycles,
     "mark in the timeline when rank 0 decides what runs"},
    {O::kStallCheckDisable, "HOROVOD_STALL_CHECK_DISABLE", "0", K::kBool, &C::stall_check_disable,
     "no warning about tensors that some ranks do not submit"},
    {O::kStallCheckTimeSeconds, "HOROVOD_STALL_CHECK_TIME_SECONDS", "60", K::kInteger, &C::stall_check_time,
     "age at which a stalled tensor is reported; 0: never, like HOROVOD_STALL_CHECK_DISABLE", 0, kMaxSeconds},
    {O::kStallShutdownTimeSeconds, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0", K::kInteger, &C::stall_shutdown_time,
     "age at which a stalled tensor ends the job; 0: never; not below HOROVOD_STALL_CHECK_TIME_SECONDS; without the "
     "stall check: never", 0, kMaxSeconds},
    {O::kThreadAffinity, "HOROVOD_THREAD_AFFINITY", "", K::kCores, &C::thread_affinity,
     "cores for the threads that negotiate and reduce: a list with one core per local rank; a shorter list, or a core that "
     "is not the process', pins nothing and is logged"},
    {O::kLogLevel, "HOROVOD_LOG_LEVEL", "warning", K::kLogLevel, &C::log_level,
     "least severe message that is printed", -kInf, kInf, "trace|debug|info|warning|error|fatal"},
    {O::kLogHideTime, "HOROVOD_LOG_HIDE_TIME", "0", K::kBool, &C::log_hide_time, "no date and time in log lines"},
    {O::kNumNcclStreams, "HOROVOD_NUM_NCCL_STREAMS", "1", K::kInteger, kNoField,
     "streams of NCCL: each process set has one on a GPU", 0, 256},
    {O::kBatchD2dMemcopies, "HOROVOD_BATCH_D2D_MEMCOPIES", "1", K::kBool, &C::batch_copies,
     "copy the tensors of a list on a GPU with one kernel; those with factors go so in any case"},
    {O::kEnableAsyncCompletion, "HOROVOD_ENABLE_ASYNC_COMPLETION", "0", K::kBool, &C::async_completion,
     "PyTorch on GPUs: `synchronize` does not wait for the GPU, the current stream does (docs/gpu.md says what a lost peer means then)"},
    {O::kCudaDriver, "HOROVOD_CUDA_DRIVER", "libcuda.so.1", K::kText, &C::cuda_driver,
     "file of the CUDA driver, which is loaded when the first tensor on a GPU comes"},
    {O::kNcclLibrary, "HOROVOD_NCCL_LIBRARY", "", K::kText, &C::nccl_library,
     "file of NCCL; unset: the one that a framework has loaded, else the package nvidia-nccl's, else the system's"},
    {O::kNcclRegister, "HOROVOD_NCCL_REGISTER", "1", K::kBool, &C::nccl_register,
     "lists on GPUs are packed in memory that NCCL allocates and reaches directly (2.19 and later); 0 on a rank: not in its sets"},
    {O::kDisableNvtxRanges, "HOROVOD_DISABLE_NVTX_RANGES", "0", K::kBool, &C::disable_nvtx_ranges,
     "operations are not shown to profilers as NVTX ranges (docs/timeline.md)"},
    {O::kCheckParameters, "HOROVOD_CHECK_PARAMETERS", "", K::kInteger, kNoField,
     "PyTorch: compare parameters between ranks before every n-th step; 0: never; unset: before the first", 0, kIntMax},
    {O::kAllowChangedGradients, "HOROVOD_ALLOW_CHANGED_GRADIENTS", "0", K::kBool, kNoField,
     "PyTorch: warn, instead of an error, of gradients that were changed while their reduction was running"},
    {O::kEnableXlaOps, "HOROVOD_ENABLE_XLA_OPS", "0", K::kBool, kNoField, "TensorFlow: operations inside XLA programs"},
    {O::kCclCache, "HOROVOD_CCL_CACHE", "", K::kText, kNoField, "cache of oneCCL's operations"},
    {O::kAdasumMpiChunkSize, "HOROVOD_ADASUM_MPI_CHUNK_SIZE", "", K::kText, kNoField, "bytes of a message of MPI in Adasum"},
    {O::kMpiThreadsDisable, "HOROVOD_MPI_THREADS_DISABLE", "0", K::kBool, kNoField, "MPI without several threads"},
    {O::kElasticTimeout, "HOROVOD_ELASTIC_TIMEOUT", "600", K::kInteger, &C::elastic_timeout,
     "seconds that an elastic job waits for enough slots, and its ranks in init() so much longer", 1, kMaxSeconds},
    {O::kElasticGrace, "HOROVOD_ELASTIC_GRACE", "0", K::kInteger, kNoField,
     "seconds that a rank of an elastic job has to leave after SIGTERM (--grace); set by the launcher", 0, 86400},
    {O::kFailpoints, "HOROVOD_FAILPOINTS", "", K::kText, &C::failpoints,
     "for tests: what fails where (docs/design/failpoints.md); only builds with HVD_FAILPOINTS=ON have failpoints, to others "
     "it is an error"},
    {O::kSparkStartTimeout, "HOROVOD_SPARK_START_TIMEOUT", "600", K::kInteger, kNoField,
     "seconds that horovod.spark.run waits for its Spark tasks; read by the driver", 1, kMaxSeconds, "", OptionReader::kSpark},
    {O::kSparkPythonpath, "HOROVOD_SPARK_PYTHONPATH", "", K::kText, kNoField,
     "of an executor, or in `env`: stands before PYTHONPATH of ranks", -kInf, kInf, "", OptionReader::kSpark},
    {O::kSparkWorkDir, "HOROVOD_SPARK_WORK_DIR", "", K::kText, kNoField,
     "of an executor, or in `env`: where ranks start; unset: in the folder of their Spark task, whose name they find here",
     -kInf, kInf, "", OptionReader::kSpark},
    {O::kSparkUseLocalRankGpuIndex, "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", "0", K::kBool, kNoField,
     "use the local rank instead of the GPU that Spark assigned", -kInf, kInf, "", OptionReader::kSpark},
};
// clang-format on

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    if (kRows[i].option != static_cast<Option>(i)) return false;
  }
  return true;
}
static_assert(rows_are_in_order(), "a row stands where option_row looks for it");

// Variables of what is not built: they are checked, and do nothing.
constexpr std::pair<Option, std::string_view> kUnbuilt[] = {
    {O::kNumNcclStreams, "second stream for a process set on a GPU"},
    {O::kCclCache, "oneCCL"},
    {O::kAdasumMpiChunkSize, "MPI"},
    {O::kMpiThreadsDisable, "MPI"},
};

// clang-format off
constexpr std::string_view kBuildNames[] = {
    "HOROVOD_WITH_TENSORFLOW", "HOROVOD_WITHOUT_TENSORFLOW", "HOROVOD_WITH_PYTORCH", "HOROVOD_WITHOUT_PYTORCH",
    "HOROVOD_WITH_MXNET", "HOROVOD_WITHOUT_MXNET", "HOROVOD_WITH_GLOO", "HOROVOD_WITHOUT_GLOO", "HOROVOD_WITH_MPI",
    "HOROVOD_WITHOUT_MPI", "HOROVOD_GPU_OPERATIONS", "HOROVOD_GPU_ALLREDUCE", "HOROVOD_GPU_ALLGATHER",
    "HOROVOD_GPU_BROADCAST", "HOROVOD_GPU_ALLTOALL", "HOROVOD_GPU_REDUCESCATTER", "HOROVOD_GPU", "HOROVOD_NCCL_HOME",
    "HOROVOD_NCCL_INCLUDE", "HOROVOD_NCCL_LIB", "HOROVOD_NCCL_LINK", "HOROVOD_CUDA_HOME",
    "HOROVOD_BUILD_CUDA_CC_LIST", "HOROVOD_BUILD_ARCH_FLAGS", "HOROVOD_ROCM_HOME", "HOROVOD_CMAKE", "HOROVOD_DEBUG",
    "HOROVOD_SKIP_COMPILE", "HOROVOD_LOCAL_VERSION", "HOROVOD_ALLOW_MIXED_GPU_IMPL", "HOROVOD_WITH_NVTX",
    "HOROVOD_WITHOUT_NVTX", "HOROVOD_NVTX_INCLUDE", "HOROVOD_TEST_GPU", "HOROVOD_MIXED_INSTALL"};
// clang-format on

}  // namespace

std::span<const OptionRow> option_table() { return kRows; }

const OptionRow& option_row(Option option) { return kRows[static_cast<std::size_t>(option)]; }

std::string_view unbuilt_feature(Option option) {
  for (const auto& [unbuilt, feature] : kUnbuilt) {
    if (unbuilt == option) return feature;
  }
  return "";
}

std::span<const std::string_view> build_variable_names() { return kBuildNames; }

}  // namespace hvd::config
