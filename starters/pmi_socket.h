#pragma once

#include <string>
#include <string_view>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "starters/pmi_line.h"

namespace hvd::starters {

// The socket that PMI_FD names, on which one asks a process manager. The descriptor is not ours: an MPI library in this
// process (mpi4py) talks on it too, before and after us, with one request at a time as we do. Who takes the descriptor
// for the process manager's must say goodbye before it ends, or the manager ends the others: MPI does when it was
// initialised, and else we do.
class PmiSocket {
 public:
  PmiSocket(int fd, std::string owner) : fd_(fd), owner_(std::move(owner)) {}

  enum class Form { kLine, kBlock };  // of PMI-1, of PMI-2
  // `answer`: the command of the answer; with `rc`, it must be 0. Errors name the command and the owner.
  Result<PmiLine> ask(Form form, const PmiWords& request, std::string_view answer, const Deadline& deadline,
                      int wake_fd);
  // Once, when it was used, unless somebody else has taken it over.
  void say_goodbye(Form form, std::string_view answer);

 private:
  Status read_line(std::string& line, const Deadline& deadline, int wake_fd) const;
  Status read_block(std::string& block, const Deadline& deadline, int wake_fd) const;

  const int fd_;
  const std::string owner_;  // for messages
  // Of the socket, once it was used: somebody may close it, and its number go to another file.
  unsigned long inode_ = 0;
};

// Whether an MPI library of this process has been initialised: what is on the socket is then its own.
bool mpi_is_in_charge();

}  // namespace hvd::starters
