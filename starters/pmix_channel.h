#pragma once

#include <memory>
#include <string>

#include "starters/key_value_space.h"

namespace hvd::starters {

// That of whatever speaks PMIx: Open MPI's mpirun, srun --mpi=pmix, jsrun. What goes over PMIx's wire is its library's
// own affair, so the host's libpmix.so.2 is loaded, the one that an Open MPI in this process uses as well: it counts
// who begins and who ends. Its thread lives from here to leave(), which every process of a job must come to, for what
// ends without it has failed for the manager.
class PmixChannel final : public KeyValueSpace {
 public:
  // Nothing where there is no libpmix, not all that we need of it, or nobody who listens to it; kTimeout where somebody
  // listens and does not answer.
  static Result<std::unique_ptr<PmixChannel>> open_library(int rank, const Deadline& deadline, int wake_fd);
  ~PmixChannel() override;

  std::string name() const override { return "the key-value space of the process manager (PMIx)"; }
  void leave() override;

 private:
  struct Library;
  static std::shared_ptr<Library> load();
  PmixChannel(std::shared_ptr<Library> library, int rank);
  Status open(const Wait& wait) override;
  Status put(const std::string& text, const Wait& wait) override;
  Status pass_fence(const Wait& wait) override;
  Result<std::string> get(const Wait& wait) override;
  std::string elsewhere() const override {
    return "; one whose host has no libpmix.so.2 looks in a folder, and says so (HOROVOD_SHARED_DIR has all look "
           "there)";
  }
  Status failed(const char* call, int code) const;

  const std::shared_ptr<Library> library_;  // with the thread of a PMIx_Init that nobody waits for any more
  const int rank_;
  bool is_open_ = true;  // until this process has left
};

}  // namespace hvd::starters
