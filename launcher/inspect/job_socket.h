#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/main_loop.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"
#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Where a running job answers `horovodrun --stacks JOB` and `--status JOB`: a socket of this host that takes its own
// user's connections alone, and root's. Who connects sends a word and a newline, gets the answer, and is hung up on.
// The first letter of the answer is the exit code of who asks, 0 or 1.
// Owned by the JobDriver, loop-confined. At most kMaxClients at a time, each with a deadline.
class JobSocket {
 public:
  static constexpr std::size_t kMaxClients = 16;
  static constexpr Millis kDeadline{16000};  // for question and answer

  // Once, at once or later: the whole answer, or all that there is of it.
  using Reply = std::function<void(const std::string& text, bool complete)>;
  // False for a word that means nothing.
  using Answer = std::function<bool(const std::string& word, Reply reply)>;
  static Result<std::unique_ptr<JobSocket>> open(MainLoop& loop, Answer answer);
  ~JobSocket();

 private:
  class Client;
  JobSocket(MainLoop& loop, Answer answer);
  void accept_one();
  void reply(std::uint64_t client, const std::string& answer);
  void forget(const Client* client);

  MainLoop& loop_;
  const Answer answer_;
  Fd listener_;
  std::unique_ptr<loop::Poll> poll_;
  loop::Timer pause_;  // after an accept that failed
  std::vector<std::unique_ptr<Client>> clients_;
  std::uint64_t last_client_ = 0;
};

// `horovodrun --<word> JOB`, the process id of a horovodrun on this host. Prints what its JobSocket says; the exit code
// of the program.
int ask_job(int job, const std::string& word, Millis patience = JobSocket::kDeadline);

}  // namespace hvd::launcher
