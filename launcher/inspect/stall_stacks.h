#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

namespace hvd::launcher {

// Says where a rank stands that others have waited for too long: as often as they report it, but only where that has
// changed. Owned by the JobDriver, loop-confined.
class StallStacks {
 public:
  // `ask` asks the agent of a rank for the stacks there, of which stacks() gets what comes; `show` prints.
  StallStacks(std::function<void(int rank)> ask, std::function<void(const std::string& text)> show);

  void stalled(int rank);
  // `who` is "rank 3 on host a"; `text` as in StacksMessage.
  void stacks(int rank, const std::string& who, const std::string& text);

 private:
  const std::function<void(int rank)> ask_;
  const std::function<void(const std::string& text)> show_;
  std::set<int> asked_;
  std::map<int, std::string> shown_;
};

}  // namespace hvd::launcher
