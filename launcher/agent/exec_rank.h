#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hvd::launcher {

inline constexpr const char* kExecRankFlag = "--exec-rank";

// Where a rank's process begins: the agent starts this program again, as `horovodrun --exec-rank <agent pid>
// <descriptor limit> <ignored signals> -- <command>`,
// because libuv has no hook between fork and exec. It ties the rank's life to the agent's (PR_SET_PDEATHSIG), gives the
// command the signal dispositions and limits of a fresh process, and becomes the command. Descriptor 3 is where it
// writes errno when that fails.
std::vector<std::string> exec_rank_argv(int agent_pid, std::size_t descriptor_limit, std::uint64_t ignored_signals,
                                        const std::vector<std::string>& command);
[[noreturn]] void exec_rank_main(int argc, char** argv);

}  // namespace hvd::launcher
