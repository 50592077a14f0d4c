#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/collectives/shm/shm_backend.h"
#include "runtime/crypto/secret.h"

namespace hvd::collectives {

// How the ranks of one host come to have one segment: the first of them creates it and hands its descriptor over an
// AF_UNIX socket to those that show that they have the job's key. Blocking, for the thread that runs init(). Protocol:
// docs/design/shared-memory.md.

// The socket of one process, abstract, under a random name that its row tells. It listens before the process joins, so
// that whoever knows the name finds it there. Whether this process is the first of its host turns out when it has
// joined.
class HandOverSocket {
 public:
  static Result<HandOverSocket> open();
  const std::string& name() const { return name_; }
  int fd() const { return fd_.get(); }

 private:
  HandOverSocket(std::string name, Fd fd) : name_(std::move(name)), fd_(std::move(fd)) {}
  std::string name_;
  Fd fd_;
};

struct HandOverOptions {
  int rank = 0;
  std::vector<int> ranks;  // of this host, ascending; the first one leads
  crypto::Secret key;      // of the epoch
  Deadline deadline;
  int wake_fd = -1;  // becomes readable when the wait shall end
};

// The first rank's part. Comes to one conclusion, and tells all that it reached.
Result<SharedMemory> hand_over(const HandOverSocket& socket, const HandOverOptions& options);

// The part of each other rank: `leader` is the name of the first one's socket. Without shared memory if the leader says
// so, or can't count on this rank. Fails when this rank has agreed and does not hear the conclusion: nobody may guess.
Result<SharedMemory> take_over(const std::string& leader, const HandOverOptions& options);

}  // namespace hvd::collectives
