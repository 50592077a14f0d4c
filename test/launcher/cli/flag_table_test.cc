#include "launcher/cli/flag_table.h"

#include <catch2/catch.hpp>

#include <set>

namespace hvd::launcher {

TEST_CASE("The flag table has every spelling of Horovod's flags", "[unit][cli][compat]") {
  // clang-format off
  for (const char* text :
       {"-v", "--version", "-np", "-n", "--num-proc", "-cb", "--check-build", "--disable-cache", "--start-timeout",
        "--network-interfaces", "--network-interface", "--output-filename", "--verbose", "--config-file", "-p",
        "--ssh-port", "-i", "--ssh-identity-file", "--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity",
        "--hierarchical-allreduce", "--no-hierarchical-allreduce", "--hierarchical-allgather",
        "--no-hierarchical-allgather", "--torus-allreduce", "--no-torus-allreduce", "--autotune", "--no-autotune",
        "--autotune-log-file", "--autotune-warmup-samples", "--autotune-steps-per-sample",
        "--autotune-bayes-opt-max-samples", "--autotune-gaussian-process-noise", "--min-np", "--min-num-proc",
        "--max-np", "--max-num-proc", "--slots-per-host", "--elastic-timeout", "--reset-limit",
        "--blacklist-cooldown-range", "--timeline-filename", "--timeline-mark-cycles", "--no-timeline-mark-cycles",
        "--no-stall-check", "--stall-check", "--stall-check-warning-time-seconds",
        "--stall-check-shutdown-time-seconds", "--mpi-threads-disable", "--no-mpi-threads-disable", "--mpi-args",
        "--tcp", "--binding-args", "--num-nccl-streams", "--thread-affinity", "--gloo-timeout-seconds",
        "--log-level", "--log-with-timestamp", "--log-without-timestamp", "--log-hide-timestamp",
        "--no-log-hide-timestamp", "-prefix-timestamp", "--prefix-output-with-timestamp", "-H", "--hosts",
        "-hostfile", "--hostfile", "--host-discovery-script", "--gloo", "--mpi", "--jsrun", "--dry-run",
        "--print-config", "--kill-grace", "--stdin", "--ssh-host-keys", "--ssh-program", "--agent-path", "-h", "--help"}) {
    // clang-format on
    INFO(text);
    REQUIRE(find_spelling(text) != nullptr);
  }
  REQUIRE(find_spelling("--np") == nullptr);
}

TEST_CASE("Rows of the flag table are consistent", "[unit][cli]") {
  std::set<std::string_view> dests, spellings, keys, variables;
  for (const FlagRow& row : flag_table()) {
    INFO(row.dest);
    REQUIRE(dests.insert(row.dest).second);
    REQUIRE((row.yaml.empty() || keys.insert(row.yaml).second));
    REQUIRE((variable_of(row).empty() || variables.insert(variable_of(row)).second));
    REQUIRE(variable_of(row).empty() == (row.export_as == FlagExport::kNone));
    REQUIRE((row.kind == FlagKind::kToggle) == !row.off.empty());
    REQUIRE((row.kind == FlagKind::kChoice) == !row.choices.empty());
    REQUIRE((value_count(row.kind) == 0) == row.metavar.empty());
    REQUIRE_FALSE(row.help.empty());
    const bool numeric = row.kind == FlagKind::kInteger || row.kind == FlagKind::kReal || row.kind == FlagKind::kPair;
    REQUIRE((!numeric || range_of(row).min >= 0));  // negative values are errors everywhere
    REQUIRE((!numeric || range_of(row).max < 9e18));
    if (!row.needs.empty()) REQUIRE(flag_row(row.needs).dest == row.needs);
  }
  for (const FlagSpelling& spelling : flag_spellings()) REQUIRE(spellings.insert(spelling.text).second);
}

}  // namespace hvd::launcher
