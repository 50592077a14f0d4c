#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "starters/channel.h"
#include "starters/pmi_line.h"

namespace hvd::starters {

// The key-value space of MPICH's mpiexec (hydra) and of whatever else speaks PMI-1 on the descriptor that PMI_FD names.
// Rank 0 puts the announcement there before a barrier of all processes; the others get it behind that.
//
// The descriptor is not ours: an MPI library in this process (mpi4py) talks on it too, before and after us, with one
// request at a time as we do. Who takes the descriptor for the process manager's must say goodbye before it ends, or
// the manager ends the others: MPI does when it was initialised, and else we do.
class PmiChannel final : public Channel {
 public:
  explicit PmiChannel(int fd) : fd_(fd) {}  // a socket
  ~PmiChannel() override { forget(); }

  std::string name() const override { return "the key-value space of the process manager (PMI_FD)"; }
  Status announce(const std::string& text, const Deadline& deadline, int wake_fd) override;
  Result<std::string> find(const Deadline& deadline, int wake_fd) override;
  void forget() override;
  void leave() override;

 private:
  using Words = std::vector<std::pair<std::string_view, std::string_view>>;
  // The name of the key-value space.
  Result<std::string> open(const Deadline& deadline, int wake_fd);
  // `answer`: the command of the answer; with `rc`, it must be 0.
  Result<PmiLine> ask(const Words& request, std::string_view answer, const Deadline& deadline, int wake_fd);
  Status pass_barrier(const Deadline& deadline, int wake_fd);
  Status read_line(std::string& line, const Deadline& deadline, int wake_fd);

  const int fd_;
  // Of the socket, once it was used: somebody may close it, and its number go to another file.
  unsigned long inode_ = 0;
  std::string found_;  // the barrier is passed once; "" when forgotten
};

}  // namespace hvd::starters
