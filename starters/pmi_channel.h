#pragma once

#include <string>
#include <string_view>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "starters/key_value_space.h"
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

// That of MPICH's mpiexec (hydra) and of whatever else speaks PMI-1 on the descriptor that PMI_FD names.
class PmiChannel final : public KeyValueSpace {
 public:
  explicit PmiChannel(int fd) : socket_(fd, name()) {}  // a socket
  ~PmiChannel() override { forget(); }

  std::string name() const override { return "the key-value space of the process manager (PMI_FD)"; }
  void leave() override { socket_.say_goodbye(PmiSocket::Form::kLine, "finalize_ack"); }

 private:
  Status open(const Wait& wait) override;
  Status put(const std::string& text, const Wait& wait) override;
  Status pass_fence(const Wait& wait) override;
  Result<std::string> get(const Wait& wait) override;
  Result<PmiLine> ask(const PmiWords& request, std::string_view answer, const Wait& wait);

  PmiSocket socket_;
  std::string space_;  // its name
};

// That of srun --mpi=pmi2, which speaks PMI-2 there. An MPI library that is initialised later in this process would
// greet the manager a second time, which Slurm does not take.
class Pmi2Channel final : public KeyValueSpace {
 public:
  Pmi2Channel(int fd, int rank, std::string job) : socket_(fd, name()), rank_(rank), job_(std::move(job)) {}
  ~Pmi2Channel() override { forget(); }

  std::string name() const override { return "the key-value space of the process manager (PMI-2)"; }
  void leave() override { socket_.say_goodbye(PmiSocket::Form::kBlock, "finalize-response"); }

 private:
  Status open(const Wait& wait) override;
  Status put(const std::string& text, const Wait& wait) override;
  Status pass_fence(const Wait& wait) override;
  Result<std::string> get(const Wait& wait) override;
  Result<PmiLine> ask(const PmiWords& request, const Wait& wait);

  PmiSocket socket_;
  const int rank_;
  const std::string job_;
  bool is_open_ = false;
};

}  // namespace hvd::starters
