#pragma once

#include <string>

#include "starters/key_value_space.h"
#include "starters/pmi_socket.h"

namespace hvd::starters {

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
