#pragma once

namespace hvd::launcher {

inline constexpr const char* kAgentFlag = "--agent";

// `horovodrun --agent <cookie>`: two processes. The first is the guard: it does nothing but wait, and if the second, the
// agent proper, is killed, it ends what the agent's ranks had started and left to it. Returns the exit code.
int agent_main(int argc, char** argv);

}  // namespace hvd::launcher
