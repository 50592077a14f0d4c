#pragma once

#include <functional>
#include <string>
#include <thread>

namespace hvd {

// Starts a thread of ours: named (at most 15 bytes are kept by the kernel), with every signal blocked, so that signals
// reach the user's threads (Ctrl-C must interrupt Python, and SIGPIPE must not kill the process). An exception that
// leaves `body` is a bug of ours and aborts with its text. The caller owns the thread and joins it.
std::jthread start_thread(std::string name, std::function<void(std::stop_token)> body);

}  // namespace hvd
