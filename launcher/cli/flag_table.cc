#include "launcher/cli/flag_table.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hvd::launcher {

namespace {

using K = FlagKind;
using O = config::Option;
using S = HelpSection;
using E = FlagExport;

constexpr double kIntMax = std::numeric_limits<int>::max();
constexpr double kYear = 31'536'000;  // seconds

// clang-format off
constexpr FlagRow kRows[] = {
    {.dest = "version", .on = "-v|--version", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "print the version and exit"},
    {.dest = "help", .on = "-h|--help", .kind = K::kSwitch, .section = S::kGeneral, .help = "print this text and exit"},
    {.dest = "num_proc", .on = "-np|-n|--num-proc", .kind = K::kInteger, .section = S::kGeneral,
     .help = "number of processes to start; default inside an allocation of several hosts: its slots, else required",
     .metavar = "N", .min = 1, .max = 1 << 20},
    {.dest = "check_build", .on = "-cb|--check-build", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "list what this build supports and exit"},
    {.dest = "print_config", .on = "--print-config", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "list every environment variable with the value that ranks would get and where it comes from, and exit"},
    {.dest = "dry_run", .on = "--dry-run", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "show hosts, ranks, command and variables, and start nothing"},
    {.dest = "man", .on = "--man", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "print the manual page: horovodrun --man | man -l -"},
    {.dest = "completion", .on = "--completion", .kind = K::kChoice, .section = S::kGeneral,
     .help = "print the completions of a shell: eval \"$(horovodrun --completion bash)\" in ~/.bashrc; for zsh a file "
             "_horovodrun in $fpath, for fish one in ~/.config/fish/completions", .metavar = "SHELL",
     .choices = "bash|zsh|fish"},
    {.dest = "check", .on = "--check", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "look at the hosts before a job: can each be reached, has it the same versions, enough memory, a clock that is "
             "right, ..., and do they reach each other; exit code 1 when something is missing; the command, if there is one, is the Python to look at"},
    {.dest = "json", .on = "--json", .kind = K::kSwitch, .section = S::kGeneral, .help = "for --check: as JSON"},
    {.dest = "report", .on = "--report", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "print versions and what was found, ready to paste into a report of a problem (python -m horovod)"},
    {.dest = "serve", .on = "--serve", .kind = K::kSwitch, .section = S::kServe,
     .help = "start nothing: let N processes that something else starts meet here; prints the variables they need"},
    {.dest = "listen", .on = "--listen", .kind = K::kText, .section = S::kServe,
     .help = "for --serve and --wait-for-hosts: numeric address of this host, with or without :PORT; 0.0.0.0 or [::]: all; "
             "default of --serve: 127.0.0.1", .metavar = "ADDRESS"},
    {.dest = "secret_file", .on = "--secret-file", .kind = K::kText, .section = S::kServe,
     .help = "64 hexadecimal digits that only this user may read; default: a new file, removed at the end",
     .metavar = "FILE"},
    {.dest = "disable_cache", .on = "--disable-cache", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "accepted for old command lines: nothing is cached between launches"},
    {.dest = "start_timeout", .on = "--start-timeout", .kind = K::kInteger, .section = S::kGeneral,
     .help = "every host must have answered within this time, and ranks wait that long for each other in init(), though "
             "never less than --gloo-timeout-seconds (30 unless it is given); default: HOROVOD_START_TIMEOUT, else 30 for "
             "hosts and 600 for ranks",
     .metavar = "SECONDS", .option = O::kStartTimeout, .export_as = E::kPlain},
    {.dest = "kill_grace", .on = "--kill-grace", .kind = K::kInteger, .section = S::kGeneral,
     .help = "how long ranks that are told to end have before they are killed; default: 5 after your signal, 2 after a "
             "failure", .metavar = "SECONDS", .min = 0, .max = kYear},
    {.dest = "timeout", .on = "--timeout", .kind = K::kInteger, .section = S::kGeneral,
     .help = "end the job, with exit code 124, when its ranks have run for this long; Python prints where each of them "
             "stands; default: no limit", .metavar = "SECONDS", .min = 1, .max = kYear},
    {.dest = "stacks", .on = "--stacks", .kind = K::kInteger, .section = S::kGeneral,
     .help = "print where the Python programs of all ranks of a running job of yours stand; JOB is the process id of its "
             "horovodrun, on this host", .metavar = "JOB", .min = 1, .max = kIntMax},
    {.dest = "status", .on = "--status", .kind = K::kInteger, .section = S::kGeneral,
     .help = "print as JSON the hosts, ranks and rounds of a running job of yours; JOB as for --stacks",
     .metavar = "JOB", .min = 1, .max = kIntMax},
    {.dest = "stdin", .on = "--stdin", .kind = K::kChoice, .section = S::kGeneral,
     .help = "which ranks read the launcher's standard input: none, rank0 (default) or all", .metavar = "WHO",
     .choices = "none|rank0|all"},
    {.dest = "debug_rank", .on = "--debug-rank", .kind = K::kInteger, .section = S::kGeneral,
     .help = "for pdb and its like: this rank reads what you type, and what it prints is shown at once and as it is; Ctrl-C is "
             "for it alone, twice within a second for the job", .metavar = "RANK", .min = 0, .max = kIntMax},
    {.dest = "results_fd", .on = "--results-fd", .kind = K::kInteger, .section = S::kGeneral,
     .help = "for horovod.run(): ranks have a pipe as descriptor 4, and what they write there goes to this socket of ours",
     .metavar = "FD", .min = 3, .max = 1 << 20},
    {.dest = "network_interfaces", .on = "--network-interfaces", .kind = K::kList, .section = S::kGeneral,
     .help = "network interfaces that may be used, separated by commas; a host uses the first that it has; default: "
             "chosen by route", .metavar = "A,B"},
    {.dest = "network_interface", .on = "--network-interface", .kind = K::kList, .section = S::kGeneral,
     .help = "one network interface that may be used; repeatable", .metavar = "A"},
    {.dest = "port_range", .on = "--port-range", .kind = K::kText, .section = S::kGeneral,
     .help = "ports to listen on, on this host for the rendezvous and on each for its ranks, one for each; default: "
             "HOROVOD_PORT_RANGE, else any", .metavar = "FIRST-LAST", .option = O::kPortRange, .export_as = E::kPlain},
    {.dest = "tls", .on = "--tls", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "every TCP connection between ranks, and to the rendezvous, is TLS 1.3; for networks on which others can listen; "
             "default: HOROVOD_TLS, else off", .option = O::kTls, .export_as = E::kBit},
    {.dest = "output_filename", .on = "--output-filename", .kind = K::kText, .section = S::kOutput,
     .help = "also write output to DIR/rank.<rank>/stdout and stderr", .metavar = "DIR"},
    {.dest = "log_dir", .on = "--log-dir", .kind = K::kText, .section = S::kOutput,
     .help = "at the end write DIR/summary.json: exit code, what failed first and why", .metavar = "DIR"},
    {.dest = "summary", .on = "--summary", .kind = K::kSwitch, .section = S::kOutput,
     .help = "at the end show how each rank ended, how long it ran, what it reduced, how long it waited for others, and for whom"},
    {.dest = "events", .on = "--events", .kind = K::kText, .section = S::kOutput,
     .help = "append what happens to the job to FILE, as it happens: an object of JSON a line, for programs (docs/monitoring.md)",
     .metavar = "FILE"},
    {.dest = "chosen_variables", .on = "-x", .kind = K::kWords, .section = S::kGeneral,
     .help = "a variable for ranks: NAME=VALUE, or NAME of horovodrun's own environment (all of which they get, but for "
             "CUDA_VISIBLE_DEVICES and functions of the shell, unless they are named here), with * and ? for several; repeatable",
     .metavar = "NAME[=VALUE]"},
    {.dest = "no_env", .on = "--no-env", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "ranks get what their host gives a login (here: HOME, LOGNAME, PATH, SHELL, USER) in place of horovodrun's own "
             "environment, and what -x, --env-file and other flags say"},
    {.dest = "env_file", .on = "--env-file", .kind = K::kText, .section = S::kGeneral,
     .help = "file with such variables, one a line; -x goes before", .metavar = "FILE"},
    {.dest = "wdir", .on = "-wdir|--wdir", .kind = K::kText, .section = S::kGeneral,
     .help = "where ranks start, on every host; without it horovodrun's own directory, or where their host has none of that "
             "name their home directory", .metavar = "DIR"},
    {.dest = "verbose", .on = "--verbose", .kind = K::kSwitch, .section = S::kGeneral,
     .help = "tell what the launcher does"},
    {.dest = "config_file", .on = "--config-file", .kind = K::kText, .section = S::kGeneral,
     .help = "YAML file with values for flags; a flag on the command line beats it", .metavar = "FILE"},
    {.dest = "prefix_output_with_timestamp", .on = "-prefix-timestamp|--prefix-output-with-timestamp",
     .kind = K::kSwitch, .section = S::kOutput, .help = "begin every line of output with the time", .group = "timestamp"},
    {.dest = "timestamp", .on = "--timestamp", .kind = K::kChoice, .section = S::kOutput,
     .help = "begin every line of output with the time as 2026-01-31T12:00:00.000+01:00 (iso), or in seconds since the start "
             "of horovodrun (relative)", .metavar = "FORMAT", .choices = "iso|relative", .group = "timestamp"},
    {.dest = "color", .on = "--color", .kind = K::kChoice, .section = S::kOutput,
     .help = "colour the prefix of ranks: on a terminal (auto, default; not when NO_COLOR is set), always or never",
     .metavar = "WHEN", .choices = "auto|always|never"},
    {.dest = "show_ranks", .on = "--show-ranks", .kind = K::kText, .section = S::kOutput,
     .help = "show what these ranks print, as in 0,8-15, and of others only why they failed; files have all",
     .metavar = "RANKS"},
    {.dest = "no_prefix", .on = "--no-prefix", .kind = K::kSwitch, .section = S::kOutput,
     .help = "show lines as they are, without [rank]<stream>; for one rank: -np 1, or --show-ranks", .group = "prefix"},
    {.dest = "prefix_template", .on = "--prefix-template", .kind = K::kText, .section = S::kOutput,
     .help = "what begins every line of output in place of [rank]<stream>: a text with the fields {rank}, {local_rank}, {host}, "
             "{stream} and {time} (as --timestamp has it, else iso), as in '{rank}@{host} '; {{ is a brace itself",
     .metavar = "TEXT", .group = "prefix"},
    {.dest = "progress_bars", .on = "--progress-bars", .kind = K::kChoice, .section = S::kOutput,
     .help = "what becomes of lines that end in a carriage return: on a terminal there is one line a rank, drawn anew; "
             "elsewhere all states are kept (keep, default), or the last alone (last)", .metavar = "WHAT",
     .choices = "keep|last"},

    {.dest = "ssh_port", .on = "-p|--ssh-port", .kind = K::kInteger, .section = S::kSsh,
     .help = "ssh port of hosts that name none", .metavar = "PORT", .min = 1, .max = 65535},
    {.dest = "ssh_identity_file", .on = "-i|--ssh-identity-file", .kind = K::kText, .section = S::kSsh,
     .help = "ssh private key", .metavar = "FILE"},
    {.dest = "ssh_host_keys", .on = "--ssh-host-keys", .kind = K::kChoice, .section = S::kSsh,
     .help = "strict: only known hosts; accept-new (default): also new ones, but no changed key; off: no check",
     .metavar = "POLICY", .choices = "strict|accept-new|off"},
    {.dest = "ssh_program", .on = "--ssh-program", .kind = K::kText, .section = S::kSsh,
     .help = "the ssh client to run; default: ssh", .metavar = "PROGRAM"},
    {.dest = "rsh", .on = "--rsh", .kind = K::kText, .section = S::kSsh,
     .help = "what starts agents in place of ssh: a command that ends with the host, or has {host} in it, and is followed by "
             "the agent's command, as in 'kubectl exec -i {host} --'; srun; default: srun for Slurm's hosts, else ssh",
     .metavar = "COMMAND"},
    {.dest = "fan_out", .on = "--fan-out", .kind = K::kInteger, .section = S::kSsh,
     .help = "log in to N hosts from here, and from these to the others, which need the same names, and keys of their own; what "
             "does not work that way is started from here; default: log in to all hosts from here",
     .metavar = "N", .min = 1, .max = 64},
    {.dest = "container", .on = "--container", .kind = K::kText, .section = S::kSsh,
     .help = "what starts the agent of each host, and so its ranks, in a container: 'apptainer exec --nv image.sif'; that has "
             "to have horovodrun of this version, found by its PATH or --agent-path", .metavar = "COMMAND"},
    {.dest = "agent_path", .on = "--agent-path", .kind = K::kText, .section = S::kSsh,
     .help = "horovodrun on remote hosts; default: the path of this program", .metavar = "FILE"},

    {.dest = "fusion_threshold_mb", .on = "--fusion-threshold-mb", .kind = K::kInteger, .section = S::kTuning,
     .help = "largest batch of fused tensors; 0: no fusion", .metavar = "MB", .option = O::kFusionThreshold,
     .export_as = E::kMegabytes, .yaml = "params.fusion_threshold_mb"},
    {.dest = "cycle_time_ms", .on = "--cycle-time-ms", .kind = K::kReal, .section = S::kTuning,
     .help = "longest delay spent on collecting a larger batch", .metavar = "MS", .option = O::kCycleTime,
     .export_as = E::kReal, .yaml = "params.cycle_time_ms"},
    {.dest = "cache_capacity", .on = "--cache-capacity", .kind = K::kInteger, .section = S::kTuning,
     .help = "entries of the response cache; 0: no cache", .metavar = "N", .option = O::kCacheCapacity,
     .export_as = E::kPlain, .yaml = "params.cache_capacity"},
    {.dest = "hierarchical_allreduce", .on = "--hierarchical-allreduce", .kind = K::kToggle, .section = S::kTuning,
     .help = "reduce inside hosts first", .off = "--no-hierarchical-allreduce",
     .option = O::kHierarchicalAllreduce, .export_as = E::kBit, .yaml = "params.hierarchical_allreduce"},
    {.dest = "hierarchical_allgather", .on = "--hierarchical-allgather", .kind = K::kToggle, .section = S::kTuning,
     .help = "gather inside hosts first", .off = "--no-hierarchical-allgather",
     .option = O::kHierarchicalAllgather, .export_as = E::kBit, .yaml = "params.hierarchical_allgather"},
    {.dest = "torus_allreduce", .on = "--torus-allreduce", .kind = K::kToggle, .section = S::kTuning,
     .help = "reduce inside hosts first, then between them", .off = "--no-torus-allreduce",
     .option = O::kTorusAllreduce, .export_as = E::kBit, .yaml = "params.torus_allreduce"},

    {.dest = "autotune", .on = "--autotune", .kind = K::kToggle, .section = S::kAutotune,
     .help = "tune batching while the job runs", .off = "--no-autotune", .option = O::kAutotune,
     .export_as = E::kBit, .yaml = "autotune.enabled"},
    {.dest = "autotune_log_file", .on = "--autotune-log-file", .kind = K::kText, .section = S::kAutotune,
     .help = "CSV file of the tuning steps", .metavar = "FILE", .option = O::kAutotuneLog,
     .export_as = E::kPlain, .yaml = "autotune.log_file", .needs = "autotune"},
    {.dest = "autotune_warmup_samples", .on = "--autotune-warmup-samples", .kind = K::kInteger,
     .section = S::kAutotune, .help = "samples thrown away at first", .metavar = "N",
     .option = O::kAutotuneWarmupSamples, .export_as = E::kPlain, .yaml = "autotune.warmup_samples",
     .needs = "autotune"},
    {.dest = "autotune_steps_per_sample", .on = "--autotune-steps-per-sample", .kind = K::kInteger,
     .section = S::kAutotune, .help = "steps per sample", .metavar = "N", .option = O::kAutotuneStepsPerSample,
     .export_as = E::kPlain, .yaml = "autotune.steps_per_sample", .needs = "autotune"},
    {.dest = "autotune_bayes_opt_max_samples", .on = "--autotune-bayes-opt-max-samples", .kind = K::kInteger,
     .section = S::kAutotune, .help = "samples after which tuning ends", .metavar = "N",
     .option = O::kAutotuneBayesOptMaxSamples, .export_as = E::kPlain,
     .yaml = "autotune.bayes_opt_max_samples", .needs = "autotune"},
    {.dest = "autotune_gaussian_process_noise", .on = "--autotune-gaussian-process-noise", .kind = K::kReal,
     .section = S::kAutotune, .help = "noise of a sample, 0 to 1", .metavar = "X",
     .option = O::kAutotuneGaussianProcessNoise, .export_as = E::kReal,
     .yaml = "autotune.gaussian_process_noise", .needs = "autotune"},

    {.dest = "min_num_proc", .on = "--min-np|--min-num-proc", .kind = K::kInteger, .section = S::kElastic,
     .help = "the job is elastic and goes on while it has this many processes; default with a discovery script: -np",
     .metavar = "N", .min = 1, .max = 1 << 20},
    {.dest = "max_num_proc", .on = "--max-np|--max-num-proc", .kind = K::kInteger, .section = S::kElastic,
     .help = "an elastic job grows to this many processes; default: as many as there are slots",
     .metavar = "N", .min = 1, .max = 1 << 20},
    {.dest = "slots", .on = "--slots-per-host", .kind = K::kInteger, .section = S::kElastic,
     .help = "slots of discovered hosts that state none, default: 1; and of each host that calls in, default: an equal share "
             "of -np", .metavar = "N", .min = 1, .max = 4096},
    {.dest = "elastic_timeout", .on = "--elastic-timeout", .kind = K::kInteger, .section = S::kElastic,
     .help = "wait this long for enough slots; default: HOROVOD_ELASTIC_TIMEOUT, else 600", .metavar = "SECONDS",
     .option = O::kElasticTimeout, .export_as = E::kPlain},
    {.dest = "reset_limit", .on = "--reset-limit|--max-restarts", .kind = K::kInteger, .section = S::kElastic,
     .help = "an elastic job ends instead of beginning anew more often than this; --max-restarts is torchrun's name",
     .metavar = "N", .min = 0, .max = kIntMax},
    {.dest = "cooldown_range", .on = "--blacklist-cooldown-range", .kind = K::kPair, .section = S::kElastic,
     .help = "shortest and longest time in seconds before a failed host, or slot, is tried again; default: never",
     .metavar = "MIN MAX", .min = 1, .max = 3600},
    {.dest = "blacklist", .on = "--blacklist", .kind = K::kChoice, .section = S::kElastic,
     .help = "what an elastic job leaves aside when a process has failed: its host, if the others suffice (default), its slot "
             "alone, if the others suffice, or none: the process is started anew in its slot (default with --spares)",
     .metavar = "WHAT", .choices = "host|slot|none"},
    {.dest = "replace_stuck", .on = "--replace-stuck", .kind = K::kInteger, .section = S::kElastic,
     .help = "end a process of an elastic job that is stopped (SIGSTOP), or that has not come while the others wait for the "
             "next round, after this time; default: never, it is only reported", .metavar = "SECONDS", .min = 1, .max = 86400},
    {.dest = "spares", .on = "--spares", .kind = K::kInteger, .section = S::kElastic,
     .help = "of the slots beyond -np, keep N for processes that wait in init() and take the place of a lost rank at once; "
             "default: 0", .metavar = "N", .min = 0, .max = 4096},
    {.dest = "grace", .on = "--grace", .kind = K::kInteger, .section = S::kElastic,
     .help = "on SIGTERM an agent or a rank of an elastic job leaves after the next commit, without counting as failed, and "
             "at the latest after this time; default: 0, at once", .metavar = "SECONDS", .min = 0, .max = 86400},

    {.dest = "timeline_filename", .on = "--timeline-filename", .kind = K::kText, .section = S::kTimeline,
     .help = "rank 0 writes a timeline of the operations to FILE", .metavar = "FILE", .option = O::kTimeline,
     .export_as = E::kPlain, .yaml = "timeline.filename", .needs = "timeline_filename"},
    {.dest = "timeline_mark_cycles", .on = "--timeline-mark-cycles", .kind = K::kToggle, .section = S::kTimeline,
     .help = "mark in the timeline when rank 0 decides what runs", .off = "--no-timeline-mark-cycles", .option = O::kTimelineMarkCycles,
     .export_as = E::kBit, .yaml = "timeline.mark_cycles", .needs = "timeline_filename"},

    {.dest = "no_stall_check", .on = "--no-stall-check", .kind = K::kToggle, .section = S::kStall,
     .help = "no warning about tensors that some ranks do not submit", .off = "--stall-check",
     .option = O::kStallCheckDisable, .export_as = E::kBit, .yaml = "stall_check.enabled",
     .yaml_inverted = true},
    {.dest = "stall_check_warning_time_seconds", .on = "--stall-check-warning-time-seconds", .kind = K::kInteger,
     .section = S::kStall, .help = "age at which a stalled tensor is reported", .metavar = "SECONDS",
     .option = O::kStallCheckTimeSeconds, .export_as = E::kPlain, .yaml = "stall_check.warning_time_seconds"},
    {.dest = "stall_check_shutdown_time_seconds", .on = "--stall-check-shutdown-time-seconds", .kind = K::kInteger,
     .section = S::kStall, .help = "age at which a stalled tensor ends the job; 0: never", .metavar = "SECONDS",
     .option = O::kStallShutdownTimeSeconds, .export_as = E::kPlain,
     .yaml = "stall_check.shutdown_time_seconds"},

    {.dest = "mpi_threads_disable", .on = "--mpi-threads-disable", .kind = K::kToggle, .section = S::kLibrary,
     .help = "MPI only: ignored", .off = "--no-mpi-threads-disable", .option = O::kMpiThreadsDisable,
     .export_as = E::kBit, .yaml = "library_options.mpi_threads_disable", .feature = Feature::kMpi},
    {.dest = "mpi_args", .on = "--mpi-args", .kind = K::kText, .section = S::kLibrary, .help = "MPI only: ignored",
     .metavar = "ARGS", .feature = Feature::kMpi},
    {.dest = "tcp_flag", .on = "--tcp", .kind = K::kSwitch, .section = S::kLibrary,
     .help = "NCCL leaves InfiniBand aside: NCCL_IB_DISABLE=1 in the environment of ranks",
     .other_variable = "NCCL_IB_DISABLE", .export_as = E::kBit},
    {.dest = "binding_args", .on = "--binding-args", .kind = K::kText, .section = S::kLibrary,
     .help = "MPI only: ignored", .metavar = "ARGS", .feature = Feature::kMpi},
    {.dest = "num_nccl_streams", .on = "--num-nccl-streams", .kind = K::kInteger, .section = S::kLibrary,
     .help = "NCCL streams per GPU", .metavar = "N", .option = O::kNumNcclStreams, .export_as = E::kPlain,
     .yaml = "library_options.num_nccl_streams", .feature = Feature::kGpu},
    {.dest = "thread_affinity", .on = "--thread-affinity", .kind = K::kText, .section = S::kLibrary,
     .help = "cores for the runtime's threads, one for each rank of a host: 0,8", .metavar = "CORES",
     .option = O::kThreadAffinity, .export_as = E::kPlain, .yaml = "library_options.thread_affinity"},
    {.dest = "gloo_timeout_seconds", .on = "--gloo-timeout-seconds", .kind = K::kInteger, .section = S::kLibrary,
     .help = "how long ranks wait for each other to join or connect", .metavar = "SECONDS",
     .option = O::kGlooTimeoutSeconds, .export_as = E::kPlain, .yaml = "library_options.gloo_timeout_seconds"},

    {.dest = "log_level", .on = "--log-level", .kind = K::kChoice, .section = S::kLogging,
     .help = "least severe message that ranks print: TRACE, DEBUG, INFO, WARNING, ERROR or FATAL",
     .metavar = "LEVEL", .option = O::kLogLevel, .export_as = E::kPlain, .yaml = "logging.level",
     .choices = "TRACE|DEBUG|INFO|WARNING|ERROR|FATAL"},
    {.dest = "log_with_timestamp", .on = "--log-with-timestamp|--no-log-hide-timestamp", .kind = K::kToggle,
     .section = S::kLogging, .help = "date and time in log lines",
     .off = "--log-without-timestamp|--log-hide-timestamp", .option = O::kLogHideTime,
     .export_as = E::kInverseBit, .yaml = "logging.with_timestamp"},

    {.dest = "hosts", .on = "-H|--hosts", .kind = K::kText, .section = S::kHosts,
     .help = "hosts and their slots: [user@]host[[:port]:slots],...; without slots one; default: those of the batch system "
             "(Slurm, PBS, LSF, Grid Engine) or the MPI operator, else localhost", .metavar = "HOSTS", .group = "hosts"},
    {.dest = "hostfile", .on = "-hostfile|--hostfile", .kind = K::kText, .section = S::kHosts,
     .help = "file with a host per line: host [slots=N] [port=P]", .metavar = "FILE", .group = "hosts"},
    {.dest = "watch_hostfile", .on = "--watch-hostfile", .kind = K::kSwitch, .section = S::kHosts,
     .help = "the job is elastic, and --hostfile is read again every second"},
    {.dest = "include", .on = "--include", .kind = K::kText, .section = S::kHosts,
     .help = "of these hosts only: names separated by commas, with ranges as in n[01-04,7]", .metavar = "NAMES"},
    {.dest = "exclude", .on = "--exclude", .kind = K::kText, .section = S::kHosts,
     .help = "without these hosts; as --include", .metavar = "NAMES"},
    {.dest = "wait_for_hosts", .on = "--wait-for-hosts", .kind = K::kInteger, .section = S::kJoin,
     .help = "log in nowhere: wait until N hosts have called in, at --listen, and run the job on them, an equal share of -np "
             "on each; with --min-np more may come, and come back, as long as the job runs", .metavar = "N", .min = 1, .max = 65536,
     .group = "hosts"},
    {.dest = "join", .on = "--join", .kind = K::kText, .section = S::kJoin,
     .help = "start nothing now: be one of the hosts for which the horovodrun at that address waits", .metavar = "HOST:PORT"},
    {.dest = "token_file", .on = "--token-file", .kind = K::kText, .section = S::kJoin,
     .help = "what both show each other: 64 hexadecimal digits that only this user may read (openssl rand -hex 32); "
             "/dev/fd/N: an inherited descriptor, such as a pipe",
     .metavar = "FILE"},
    {.dest = "host_name", .on = "--host-name", .kind = K::kText, .section = S::kJoin,
     .help = "for --join: the name of this host in the job; ranks follow the order of names; default: that of the node",
     .metavar = "NAME"},
    {.dest = "node_name", .on = "--node-name", .kind = K::kText, .section = S::kJoin,
     .help = "for --join, where several hosts of the job are one machine: hosts of one node name have neighbouring ranks and "
             "share local ranks", .metavar = "NAME"},
    {.dest = "end_with_parent", .on = "--end-with-parent", .kind = K::kInteger, .section = S::kJoin,
     .help = "for --join: end as by SIGTERM when the thread that started this has ended; PID: its process", .metavar = "PID",
     .min = 1, .max = 2147483647},
    {.dest = "bind", .on = "--bind", .kind = K::kChoice, .section = S::kBinding,
     .help = "bind each rank to cores of its own (core), to a NUMA node (numa), to its part of the cores near its GPU (gpu), or "
             "to none (default); of what the job may use on its host", .metavar = "TO", .choices = "none|core|numa|gpu"},
    {.dest = "bind_gpu", .on = "--bind-gpu", .kind = K::kSwitch, .section = S::kBinding,
     .help = "each rank sees one GPU alone, as device 0, by CUDA_VISIBLE_DEVICES; a value of that which its host or -x has "
             "says which there are"},
    {.dest = "host_discovery_script", .on = "--host-discovery-script", .kind = K::kText, .section = S::kHosts,
     .help = "shell command that prints the hosts of an elastic job, host[:slots] in lines; it is run every second",
     .metavar = "COMMAND", .group = "hosts"},

    {.dest = "use_gloo", .on = "--gloo", .kind = K::kSwitch, .section = S::kController,
     .help = "accepted: Gloo is the only controller", .group = "controller"},
    {.dest = "use_mpi", .on = "--mpi", .kind = K::kSwitch, .section = S::kController, .help = "MPI only: ignored",
     .group = "controller", .feature = Feature::kMpi},
    {.dest = "use_jsrun", .on = "--jsrun", .kind = K::kSwitch, .section = S::kController, .help = "MPI only: ignored",
     .group = "controller", .feature = Feature::kMpi},
};
// clang-format on

}  // namespace

std::span<const FlagRow> flag_table() { return kRows; }

const FlagRow& flag_row(std::string_view dest) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const FlagRow& r) { return r.dest == dest; });
  HVD_CHECK(row != std::end(kRows), "no such flag");
  return *row;
}

}  // namespace hvd::launcher
