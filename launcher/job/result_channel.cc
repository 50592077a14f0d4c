#include "launcher/job/result_channel.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace hvd::launcher {
namespace {

Bytes piece_of(Incarnation process, ByteSpan bytes) {
  ByteWriter piece;
  piece.put(process.slot);
  piece.put(process.number);
  piece.put_bytes(bytes);  // with its size before it
  return piece.take();
}

Bytes words_of(const JobFailure& failure, const std::string& circumstance) {
  ByteWriter why;
  why.put(static_cast<std::int32_t>(failure.who ? failure.who->rank : -1));
  why.put(static_cast<std::int32_t>(failure.who ? failure.who->slot : -1));
  why.put(failure.who ? failure.who->incarnation : std::uint32_t{0});
  why.put(static_cast<std::int32_t>(failure.exit_code));
  why.put_raw(as_bytes(failure.what));
  if (failure.who) why.put_raw(as_bytes("\n" + circumstance + "\n" + failure.name));
  return why.take();
}

}  // namespace

Status ResultChannel::check(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) {
    return Status::invalid_argument("--results-fd " + std::to_string(fd) +
                                    ": expected the descriptor of a connected stream socket");
  }
  return Status::ok();
}

Result<std::unique_ptr<ResultChannel>> ResultChannel::open(MainLoop& loop, int fd, Callbacks callbacks) {
  HVD_RETURN_IF_ERROR(check(fd));
  // Not for the agents: they would hold it open when we are gone.
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  Fd to_write(fd);
  Fd to_read(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!to_read.valid()) return Status::from_errno("--results-fd", errno);
  std::unique_ptr<ResultChannel> channel(new ResultChannel);
  HVD_ASSIGN_OR_RETURN(
      channel->writer_,
      PipeWriter::open(loop, std::move(to_write), {.on_progress = std::move(callbacks.on_progress), .on_error = {}}));
  HVD_ASSIGN_OR_RETURN(
      channel->reader_,
      PipeReader::open(loop, std::move(to_read), {.on_data = [](ByteSpan) {}, .on_end = std::move(callbacks.on_gone)}));
  return channel;
}

void ResultChannel::write(Incarnation process, ByteSpan bytes) { writer_->write(piece_of(process, bytes)); }

void ResultChannel::result(Incarnation process, ByteSpan bytes) {
  if (!bytes.empty()) write(process, bytes);
}

void ResultChannel::job_finished(const std::vector<Incarnation>& by_rank) {
  ByteWriter processes;
  for (const Incarnation process : by_rank) {
    processes.put(process.slot);
    processes.put(process.number);
  }
  write({.slot = kFinished}, processes.take());
}

void ResultChannel::job_failed(const JobFailure& failure, const std::string& circumstance) {
  write({.slot = kFailed}, words_of(failure, circumstance));
}

Bytes ResultChannel::last_piece(const Status& why) {
  if (why.code() == StatusCode::kInvalidArgument) return piece_of({.slot = kRefused}, as_bytes(why.message()));
  return piece_of({.slot = kFailed}, words_of({.who = {}, .host = "", .what = why.message()}, ""));
}

void ResultChannel::job_gave_up(const Status& why) { writer_->write(last_piece(why)); }

void ResultChannel::job_gave_up(int fd, const Status& why) {
  if (!check(fd).is_ok()) return;
  const Bytes piece = last_piece(why);
  // What cannot be written is on standard error as well.
  static_cast<void>(write_all(fd, piece.data(), piece.size()));
}

}  // namespace hvd::launcher
