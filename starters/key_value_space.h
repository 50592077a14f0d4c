#pragma once

#include <string>

#include "starters/channel.h"

namespace hvd::starters {

// The key-value space that a process manager has for the processes it starts. Rank 0 puts the announcement there before
// a fence of all processes; the others get it behind that. What manager that is, and how one talks with it, is the
// derived class'.
class KeyValueSpace : public Channel {
 public:
  Status announce(const std::string& text, const Deadline& deadline, int wake_fd) final;
  Result<std::string> find(const Deadline& deadline, int wake_fd) final;
  void forget() final;

 protected:
  struct Wait {
    const Deadline& deadline;
    int wake_fd;
  };
  // Introduces this process to the manager.
  virtual Status open(const Wait& wait) = 0;
  virtual Status put(const std::string& text, const Wait& wait) = 0;
  // Returns when all processes of the job are there.
  virtual Status pass_fence(const Wait& wait) = 0;
  virtual Result<std::string> get(const Wait& wait) = 0;
  // Where a process that never comes may be instead; for messages.
  virtual std::string elsewhere() const { return ""; }

 private:
  Status meet(const Wait& wait);

  std::string found_;  // the fence is passed once; "" when forgotten
};

}  // namespace hvd::starters
