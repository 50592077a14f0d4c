#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "runtime/config/runtime_config.h"

namespace hvd::config {

// Every variable, in the order of the table: how code refers to a variable whose name the table alone spells.
// clang-format off
enum class Option {
  kRank, kSize, kLocalRank, kLocalSize, kCrossRank, kCrossSize, kHostname, kGlooRendezvousAddr, kGlooRendezvousPort,
  kGlooIface, kPortRange, kTls, kSocketsPerPeer, kGlooTimeoutSeconds, kStartTimeout, kAgent, kSecretFile, kSharedDir, kJobId, kController, kCpuOperations, kIgnoreStarter,
  kElastic, kFusionThreshold, kIdleOutputBytes, kCycleTime, kCacheCapacity, kDisableGroupFusion, kDynamicProcessSets,
  kDeterministic, kShm, kShmCma, kHierarchicalAllreduce, kHierarchicalAllgather, kTorusAllreduce, kAutotune, kAutotuneLog,
  kAutotuneWarmupSamples, kAutotuneStepsPerSample, kAutotuneBayesOptMaxSamples, kAutotuneGaussianProcessNoise,
  kTimeline, kTimelineMarkCycles, kStallCheckDisable, kStallCheckTimeSeconds, kStallShutdownTimeSeconds,
  kThreadAffinity, kLogLevel, kLogHideTime, kNumNcclStreams, kBatchD2dMemcopies, kEnableAsyncCompletion,
  kCudaDriver, kNcclLibrary, kNcclRegister, kDisableNvtxRanges, kCheckParameters, kAllowChangedGradients, kEnableXlaOps, kCclCache, kAdasumMpiChunkSize,
  kMpiThreadsDisable, kElasticTimeout, kElasticGrace, kFailpoints, kSparkStartTimeout, kSparkPythonpath, kSparkWorkDir, kSparkUseLocalRankGpuIndex,
};
// clang-format on

// How a variable's text is read. The syntax of each kind is in parse_value.h.
enum class OptionKind {
  kText,
  kInteger,
  kReal,
  kBytes,     // 67108864, 64MB
  kBool,      // an integer (> 0 is true), or true/false, yes/no, on/off
  kChoice,    // one of `choices`, any case
  kLogLevel,  // one of `choices`, any case; another word is a warning, not an error
  kPorts,     // 40000-40099
  kCores,     // comma-separated core ids; a bad list is a warning, not an error
};

// Who reads the variable.
enum class OptionReader { kRuntime, kLauncher, kPython, kSpark };

// The field of RuntimeConfig that a row fills; monostate: checked or documented only.
using OptionField =
    std::variant<std::monostate, bool RuntimeConfig::*, int RuntimeConfig::*, std::int64_t RuntimeConfig::*,
                 double RuntimeConfig::*, std::string RuntimeConfig::*, std::chrono::seconds RuntimeConfig::*,
                 std::optional<std::chrono::duration<double, std::milli>> RuntimeConfig::*,
                 std::optional<bool> RuntimeConfig::*, std::vector<int> RuntimeConfig::*, PortRange RuntimeConfig::*,
                 LogLevel RuntimeConfig::*>;

// One variable. The one table drives parsing, docs/env.md, `horovodrun --print-config` and the warning about unknown
// names.
struct OptionRow {
  Option option;
  std::string_view name;
  std::string_view default_text;  // "" = unset
  OptionKind kind = OptionKind::kText;
  OptionField field;
  std::string_view doc;  // one line
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view choices{};  // a|b|c
  OptionReader reader = OptionReader::kRuntime;
};

std::span<const OptionRow> option_table();
const OptionRow& option_row(Option option);
inline std::string_view name_of(Option option) { return option_row(option).name; }
// What the variable is for, when that is not built and the variable has no effect; else empty.
std::string_view unbuilt_feature(Option option);
// Names that mean something to a build or a test run only: known, but in no row.
std::span<const std::string_view> build_variable_names();

}  // namespace hvd::config
