#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/job/failures.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/main_loop.h"
#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// Carries what processes write to their kResultFd to the stream socket that --results-fd names, in pieces: i32 slot,
// u32 incarnation, u32 size, bytes, little-endian. The last piece is the job's: of slot kFinished, when it ended well,
// it has slot and incarnation of each process whose result counts, in rank order; of slot kRefused, when nothing was
// started because what was asked for is wrong, the words that say so; of slot kFailed it says why: i32
// rank or -1, slot and incarnation of that process, i32 exit code, words, and of a rank in two more lines what another
// has to do with it (circumstance_of) and its name. Whoever has the other end started the
// job, and the job is to end when it closes. Owned by the JobDriver, loop-confined. It queues without a bound of its
// own: the owner looks at congested() and stops what feeds it.
class ResultChannel {
 public:
  struct Callbacks {
    std::function<void()> on_progress;  // congested() or flushed() may have changed
    std::function<void()> on_gone;      // once: the other end is closed
  };

  // Whether it is a socket; what is none cannot be watched.
  static Status check(int fd);
  // Takes the descriptor.
  static Result<std::unique_ptr<ResultChannel>> open(MainLoop& loop, int fd, Callbacks callbacks);

  void result(Incarnation process, ByteSpan bytes);
  void job_finished(const std::vector<Incarnation>& by_rank);
  void job_failed(const JobFailure& failure, const std::string& circumstance);
  // No rank has failed: kRefused if `why` is an invalid argument, else kFailed.
  void job_gave_up(const Status& why);
  // The same without a loop, if `fd` is such a socket.
  static void job_gave_up(int fd, const Status& why);
  bool congested() const { return writer_->queued() > kHighWater; }
  bool flushed() const { return writer_->broken() || writer_->queued() == 0; }

 private:
  static constexpr std::size_t kHighWater = std::size_t{4} * 1024 * 1024;

  static constexpr std::int32_t kFailed = -1;
  static constexpr std::int32_t kFinished = -2;
  static constexpr std::int32_t kRefused = -3;

  ResultChannel() = default;
  static Bytes last_piece(const Status& why);
  void write(Incarnation process, ByteSpan bytes);

  std::unique_ptr<PipeWriter> writer_;
  std::unique_ptr<PipeReader> reader_;  // nothing comes but the end
};

}  // namespace hvd::launcher
