#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/inspect/job_socket.h"
#include "launcher/process/main_loop.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Tells who asks where the ranks of this job stand: it asks the agents for each. Who comes while they are being asked
// gets the same answer. Owned by the JobDriver, loop-confined.
class StackService {
 public:
  static constexpr std::size_t kMaxText = std::size_t{64} * 1024 * 1024;  // of one answer
  static constexpr Millis kPatience{8000};                                // for the agents

  // `ask` asks those agents that can answer, and says which these are.
  StackService(MainLoop& loop, std::function<std::set<int>()> ask);

  void ask(JobSocket::Reply reply);
  // `who` is "rank 3 on host a".
  void stacks(int rank, const std::string& who, const std::string& text);
  // The agent has said all, or is gone.
  void agent_answered(int agent);

 private:
  void answer();

  const std::function<std::set<int>()> ask_;
  std::vector<JobSocket::Reply> waiting_;
  std::set<int> asked_;
  std::map<int, std::string> texts_;  // by rank
  std::size_t size_ = 0;
  loop::Timer patience_;
};

}  // namespace hvd::launcher
