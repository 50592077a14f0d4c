#include "launcher/process/byte_pipe.h"

#include <memory>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/wipe.h"

namespace hvd::launcher {
namespace {

Status open_pipe(MainLoop& loop, Fd fd, void* owner, UvHandle<uv_pipe_t>& handle) {
  HVD_FAILPOINT_RETURN("pipe.open");
  handle.init(owner, [&](uv_pipe_t* pipe) { return uv_pipe_init(loop.get(), pipe, 0); });
  const int rc = uv_pipe_open(handle.get(), fd.get());
  if (rc != 0) return Status::from_errno("uv_pipe_open", -rc);
  static_cast<void>(fd.release());  // libuv closes it from now on
  return Status::ok();
}

uv_stream_t* stream(const UvHandle<uv_pipe_t>& handle) { return reinterpret_cast<uv_stream_t*>(handle.get()); }

}  // namespace

Result<std::unique_ptr<PipeReader>> PipeReader::open(MainLoop& loop, Fd fd, Callbacks callbacks, bool wipe) {
  std::unique_ptr<PipeReader> reader(new PipeReader(std::move(callbacks), wipe));
  HVD_RETURN_IF_ERROR(open_pipe(loop, std::move(fd), reader.get(), reader->handle_));
  reader->start();
  return reader;
}

void PipeReader::start() {
  uv_read_start(
      stream(handle_),
      [](uv_handle_t* raw, std::size_t, uv_buf_t* buffer) {
        auto* self = static_cast<PipeReader*>(raw->data);
        *buffer = self == nullptr ? uv_buf_init(nullptr, 0)
                                  : uv_buf_init(reinterpret_cast<char*>(self->buffer_.data()),
                                                static_cast<unsigned>(self->buffer_.size()));
      },
      [](uv_stream_t* raw, ssize_t size, const uv_buf_t*) {
        if (auto* self = static_cast<PipeReader*>(raw->data)) self->received(size);
      });
}

void PipeReader::received(ssize_t size) {
  HVD_FAILPOINT("pipe.read");
  if (size > 0) {
    const auto got = std::span(buffer_).first(static_cast<std::size_t>(size));
    callbacks_.on_data(got);
    if (wipe_) wipe(got);
    if (paused_ && !ended_) uv_read_stop(stream(handle_));
  } else if (size < 0 && !ended_) {
    const auto callback = std::move(callbacks_.on_end);
    close();
    if (callback) callback();
  }
}

void PipeReader::pause() {
  if (!ended_) paused_ = true;
}

void PipeReader::resume() {
  if (ended_ || !paused_) return;
  paused_ = false;
  start();
}

void PipeReader::close() {
  ended_ = true;
  handle_.reset();
}

struct PipeWriter::Request {
  Request(Bytes content, bool is_wiped) : bytes(std::move(content)), wipe(is_wiped) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    if (wipe) hvd::wipe(bytes);
  }

  uv_write_t raw{};
  Bytes bytes;
  const bool wipe;
};

Result<std::unique_ptr<PipeWriter>> PipeWriter::open(MainLoop& loop, Fd fd, Callbacks callbacks) {
  std::unique_ptr<PipeWriter> writer(new PipeWriter(std::move(callbacks)));
  HVD_RETURN_IF_ERROR(open_pipe(loop, std::move(fd), writer.get(), writer->handle_));
  return writer;
}

void PipeWriter::write(Bytes bytes, bool wipe) {
  auto request = std::make_unique<Request>(std::move(bytes), wipe);
  if (broken_ || !handle_) return;
  request->raw.data = request.get();
  const uv_buf_t buffer =
      uv_buf_init(reinterpret_cast<char*>(request->bytes.data()), static_cast<unsigned>(request->bytes.size()));
  const uv_write_cb on_written = [](uv_write_t* raw, int status) {
    const std::unique_ptr<Request> done(static_cast<Request*>(raw->data));
    if (auto* self = static_cast<PipeWriter*>(raw->handle->data)) self->finished(status);
  };
  const int rc = HVD_FAILPOINT_CALL("pipe.write", uv_write(&request->raw, stream(handle_), &buffer, 1, on_written));
  if (rc == 0) {
    static_cast<void>(request.release());  // the callback owns it
  } else {
    finished(rc);
  }
}

void PipeWriter::finished(int rc) {
  if (rc == 0) {
    if (callbacks_.on_progress) callbacks_.on_progress();
  } else if (!broken_) {
    broken_ = true;
    if (callbacks_.on_error) callbacks_.on_error(Status::from_errno("write", -rc));
  }
}

std::size_t PipeWriter::queued() const { return handle_ ? uv_stream_get_write_queue_size(stream(handle_)) : 0; }

void PipeWriter::close() {
  broken_ = true;
  handle_.reset();
}

}  // namespace hvd::launcher
