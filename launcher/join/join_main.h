#pragma once

#include <cstdint>

#include "launcher/plan/launch_config.h"

namespace hvd::launcher {

// `horovodrun --join ADDRESS`: offers this host to the launcher that waits there, starts an agent when the job begins,
// and passes on what the two say, sealed on the network. It is to the agent what sshd is elsewhere: its pipe is the
// lease, so that the agent ends what it has started when the launcher, the network or this process is gone. Not for the
// signals in `ignored` (bits 1 << number). The exit code of the program: 0 when the launcher has let the agent go.
int join_main(const JoinConfig& config, std::uint64_t ignored);

}  // namespace hvd::launcher
