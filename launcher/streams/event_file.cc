#include "launcher/streams/event_file.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {

EventFile::EventFile(OutputFile file, std::function<void(const std::string&)> on_loss)
    : file_(std::move(file)), on_loss_(std::move(on_loss)) {
  // By another job, whose launcher was killed or whose disk was full.
  const off_t size = ::lseek(file_.fd.get(), 0, SEEK_END);
  char last = '\n';
  is_cut_ = size > 0 && ::pread(file_.fd.get(), &last, 1, size - 1) == 1 && last != '\n';
}

void EventFile::write(std::string_view line) {
  // So that a reader finds each line whole or not at all: the part that stands there becomes a line of its own.
  const Status status = is_cut_ ? put("\n" + std::string(line)) : put(line);
  if (status.is_ok()) return;
  if (lost_lines_++ == 0) {
    on_loss_("cannot write to " + file_.name + ": " + status.message() +
             "; the job goes on, and later events are tried");
  }
}

// As a rule in one piece, so that lines of two jobs that have one file do not mix.
Status EventFile::put(std::string_view bytes) {
  HVD_FAILPOINT_RETURN("events.write");
  while (!bytes.empty()) {
    const ssize_t n = ::write(file_.fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Status::from_errno("write", n < 0 ? errno : ENOSPC);
    const auto size = static_cast<std::size_t>(n);
    is_cut_ = bytes[size - 1] != '\n';
    bytes.remove_prefix(size);
  }
  return Status::ok();
}

}  // namespace hvd::launcher
