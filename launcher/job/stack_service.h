#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/process/byte_pipe.h"
#include "launcher/process/main_loop.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Tells `horovodrun --stacks JOB` where the ranks of this job stand: a socket of this host that takes its own user's
// connections alone, and asks the agents for each. Who comes while they are being asked gets the same answer. Owned by
// the JobDriver, loop-confined.
class StackService {
 public:
  static constexpr std::size_t kMaxClients = 16;
  static constexpr std::size_t kMaxText = std::size_t{64} * 1024 * 1024;  // of one answer
  static constexpr Millis kPatience{8000};                                // for the agents

  // `ask` asks those agents that can answer, and says which these are.
  static Result<std::unique_ptr<StackService>> open(MainLoop& loop, std::function<std::set<int>()> ask);

  // `who` is "rank 3 on host a".
  void stacks(int rank, const std::string& who, const std::string& text);
  // The agent has said all, or is gone.
  void agent_answered(int agent);

 private:
  StackService(MainLoop& loop, std::function<std::set<int>()> ask);
  void accept_one();
  void answer();
  void close_answered();

  MainLoop& loop_;
  std::function<std::set<int>()> ask_;
  Fd listener_;
  std::unique_ptr<loop::Poll> poll_;
  std::vector<std::unique_ptr<PipeWriter>> waiting_;   // for the answer
  std::vector<std::unique_ptr<PipeWriter>> answered_;  // who may still read it
  std::set<int> asked_;
  std::map<int, std::string> texts_;  // by rank
  std::size_t size_ = 0;
  loop::Timer patience_;
};

// `horovodrun --stacks JOB`, the process id of a horovodrun on this host. Prints what its StackService says; the exit
// code of the program.
int print_stacks(int job);

}  // namespace hvd::launcher
