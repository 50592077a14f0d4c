#pragma once

#include <functional>
#include <vector>

#include "launcher/process/main_loop.h"
#include "launcher/process/uv_handle.h"
#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

// Reads a pipe or stream socket as bytes come. Loop-confined. The owner must not destroy it inside on_data.
class PipeReader {
 public:
  struct Callbacks {
    std::function<void(ByteSpan)> on_data;
    std::function<void()> on_end;  // once: end of file, or an error, which for a pipe means the same
  };

  // Takes the descriptor. Reading starts at once. With `wipe` the bytes are erased from our memory once on_data had
  // them.
  static Result<std::unique_ptr<PipeReader>> open(MainLoop& loop, Fd fd, Callbacks callbacks, bool wipe = false);

  // While paused the writer at the other end fills its pipe and then waits. One more piece may come before that: of
  // many readers that are paused as soon as one has read enough, each has its turn.
  void pause();
  void resume();
  // Stops for good without on_end.
  void close();
  bool ended() const { return ended_; }

 private:
  static constexpr std::size_t kChunk = std::size_t{64} * 1024;

  PipeReader(Callbacks callbacks, bool wipe) : callbacks_(std::move(callbacks)), buffer_(kChunk), wipe_(wipe) {}
  void start();
  void received(ssize_t size);

  UvHandle<uv_pipe_t> handle_;
  Callbacks callbacks_;
  Bytes buffer_;
  const bool wipe_;
  bool ended_ = false;
  bool paused_ = false;
};

// Writes bytes in order to a pipe or stream socket. Loop-confined. It queues without a bound of its own: the owner
// looks at queued() and stops what feeds it.
class PipeWriter {
 public:
  struct Callbacks {
    std::function<void()> on_progress;     // a write has completed; queued() went down
    std::function<void(Status)> on_error;  // the other end is gone; later writes are dropped
  };

  static Result<std::unique_ptr<PipeWriter>> open(MainLoop& loop, Fd fd, Callbacks callbacks);

  // With `wipe` the bytes are erased from our memory once they are written, or never will be.
  void write(Bytes bytes, bool wipe = false);
  std::size_t queued() const;
  bool broken() const { return broken_; }
  // Closes the descriptor; what is queued is lost.
  void close();

 private:
  struct Request;

  explicit PipeWriter(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}
  void finished(int rc);

  UvHandle<uv_pipe_t> handle_;
  Callbacks callbacks_;
  bool broken_ = false;
};

}  // namespace hvd::launcher
