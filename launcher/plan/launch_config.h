#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/binding/binding.h"
#include "launcher/environment/environment.h"
#include "launcher/hosts/host_spec.h"
#include "launcher/plan/prefix_template.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

enum class SshHostKeys { kStrict, kAcceptNew, kOff };
enum class InputTo { kNobody, kRank0, kAll };

// What makes a job elastic: its ranks come and go.
struct ElasticConfig {
  int min_num_proc = 1;
  int max_num_proc = 1;
  std::string discovery_script;  // a shell command; "": the hosts are those of -H
  std::string watched_hostfile;  // or it is read again and again; "": none is
  int default_slots = 1;         // of hosts that it prints without a number
  int num_spares = 0;
  SetsAside sets_aside = SetsAside::kHosts;  // where processes have failed
  std::optional<std::chrono::seconds> replace_stuck;
  std::chrono::seconds timeout{600};
  std::optional<int> reset_limit;
  std::chrono::seconds grace{0};  // --grace: for who is told to go by SIGTERM
  std::optional<std::pair<std::chrono::milliseconds, std::chrono::milliseconds>> cooldown;
};

// How the lines of ranks look, and which are shown.
struct OutputConfig {
  enum class Colour { kAuto, kAlways, kNever };  // kAuto: on a terminal
  enum class Stamp { kNone, kCtime, kIso, kRelative };

  Colour colour = Colour::kAuto;
  Stamp stamp = Stamp::kNone;
  bool with_prefix = true;
  std::optional<PrefixTemplate> prefix;          // absent: [3]<stdout>:
  bool last_states = false;                      // of progress bars, also where there is no terminal
  std::vector<std::pair<int, int>> shown_ranks;  // from, to; none: all
  std::optional<int> raw_rank;                   // is shown at once and as it is, with no prefix
};

// --wait-for-hosts: nobody logs in to the hosts of the job, they call in.
struct GatherConfig {
  int hosts = 0;
  std::string listen_address;
  std::uint16_t port = 0;  // 0: any
  std::string token_file;

  bool operator==(const GatherConfig&) const = default;
};

// --join: this host calls in.
struct JoinConfig {
  std::string launcher;  // name or address
  std::uint16_t port = 0;
  std::string token_file;
  std::optional<std::string> host_name;       // else the node's
  std::optional<std::string> node_name = {};  // see HostSpec
  std::optional<int> ends_with_parent = {};   // the process id of who has started us
  std::chrono::seconds start_timeout{30};

  bool operator==(const JoinConfig&) const = default;
};

// Everything the command line, the configuration file and the environment decided, parsed and checked once. A value;
// who gets it does not change it. The job code sees no argv and calls no getenv for it.
struct LaunchConfig {
  int num_proc = 0;
  std::vector<HostSpec> hosts;  // from -H, --hostfile, or localhost:<np>; none yet with `gather` or a discovery script
  std::optional<GatherConfig> gather;
  std::optional<ElasticConfig> elastic;
  std::optional<int> ssh_port;
  std::optional<std::string> ssh_identity_file;
  SshHostKeys ssh_host_keys = SshHostKeys::kAcceptNew;
  std::string ssh_program = "ssh";        // --ssh-program: the client to execvp; found on PATH
  std::vector<std::string> ssh_args;      // more arguments for it
  std::vector<std::string> rsh;           // --rsh: what is run in place of ssh, with "{host}" in its words; empty: ssh
  std::vector<std::string> container;     // --container: words in front of each agent's
  std::optional<int> fan_out;             // --fan-out: so many hosts start the others' agents; absent: we start all
  std::optional<std::string> agent_path;  // --agent-path: see JobPlan::agent_words
  int verbose = 0;                        // 0 or 2
  std::optional<std::string> output_filename;
  std::optional<std::string> log_dir;
  bool summary = false;               // --summary: see summary_text()
  std::optional<std::string> events;  // --events: see JobEvents
  std::chrono::seconds start_timeout{30};
  bool tls = false;
  PortRange ports;                                 // for the rendezvous, and for ranks to listen on
  std::vector<std::string> nics;                   // --network-interface(s), in the order given, no duplicates
  std::optional<std::chrono::seconds> timeout;     // --timeout: for the job, once all ranks run
  std::optional<std::chrono::seconds> kill_grace;  // absent: short after a failure, longer after the user's signal
  InputTo input_to = InputTo::kRank0;
  std::optional<int> debug_rank;  // --debug-rank: reads our input in place of rank 0, and gets our SIGINT
  bool input_asked_for = false;   // by --stdin: somebody may wait for a prompt, wherever our output goes
  std::optional<int> results_fd;  // --results-fd: see ResultChannel
  OutputConfig output;
  BindingConfig binding;  // --bind, --bind-gpu
  bool dry_run = false;
  std::vector<std::string> command;  // argv of every rank; not empty
  std::optional<std::string> wdir;   // --wdir: where ranks start; a relative one begins in our own directory
  bool no_env = false;               // our own environment stays here
  Variables flag_variables;          // that flags and the configuration file set for every rank
  std::vector<std::string> notices;  // to print once to stderr: accepted flags without effect, deprecations
};

// See Doctor.
struct CheckConfig {
  std::vector<HostSpec> hosts;
  std::vector<std::string> flags;   // for each job
  std::vector<std::string> python;  // words of a command line that ends in what horovod is asked
  PortRange ports;                  // that jobs may listen on
  bool json = false;
  std::vector<std::string> notices;  // to print once to stderr
};

// The ssh port of a host, as the user has it; 0: as ssh has it.
inline int ssh_port_of(const HostSpec& host, const LaunchConfig& config) {
  return host.port != 0 ? host.port : config.ssh_port.value_or(0);
}

// The ssh client that may know more names than the name servers do; "" where agents are not started by ssh.
inline std::string ssh_client_of(const LaunchConfig& config) { return config.rsh.empty() ? config.ssh_program : ""; }

// Not every way to start an agent knows users and ports.
inline Status check_reachable(const LaunchConfig& config, const HostSpec& host) {
  if (config.rsh.empty() || (host.user.empty() && host.port == 0)) return Status::ok();
  return Status::invalid_argument(
      "host " + host.name + " has a user or a port, which are for ssh; agents are started by " + config.rsh.front());
}

}  // namespace hvd::launcher
