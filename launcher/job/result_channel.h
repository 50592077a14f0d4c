#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "launcher/job/failures.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/main_loop.h"
#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// Carries what ranks write to their kResultFd to the stream socket that --results-fd names, in pieces: u32 rank, u32
// size, bytes, little-endian; a size of 0 is the end of that rank's. A piece of rank kOfJob says why the job failed:
// i32 rank or -1, i32 exit code, and words. Whoever has the other end started the job, and the job is to end when it
// closes. Owned by the JobDriver, loop-confined. It queues without a bound of its own: the owner looks at congested()
// and stops what feeds it.
class ResultChannel {
 public:
  struct Callbacks {
    std::function<void()> on_progress;  // congested() or flushed() may have changed
    std::function<void()> on_gone;      // once: the other end is closed
  };

  // Takes the descriptor.
  static Result<std::unique_ptr<ResultChannel>> open(MainLoop& loop, int fd, Callbacks callbacks);

  void result(int rank, ByteSpan bytes);
  void result_end(int rank);
  void job_failed(const JobFailure& failure);
  bool congested() const { return writer_->queued() > kHighWater; }
  bool flushed() const { return writer_->broken() || writer_->queued() == 0; }

 private:
  static constexpr std::size_t kHighWater = std::size_t{4} * 1024 * 1024;

  static constexpr std::uint32_t kOfJob = 0xffffffff;

  ResultChannel() = default;
  void write(std::uint32_t rank, ByteSpan bytes);

  std::unique_ptr<PipeWriter> writer_;
  std::unique_ptr<PipeReader> reader_;  // nothing comes but the end
};

}  // namespace hvd::launcher
