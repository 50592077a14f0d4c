#include "launcher/streams/event_file.h"

#include <unistd.h>

#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {

EventFile::EventFile(OutputFile file, std::function<void(const std::string&)> on_loss)
    : file_(std::move(file)), on_loss_(std::move(on_loss)) {
  // By another job, whose launcher was killed or whose disk was full.
  const off_t size = ::lseek(file_.fd.get(), 0, SEEK_END);
  char last = '\n';
  file_.is_cut = size > 0 && ::pread(file_.fd.get(), &last, 1, size - 1) == 1 && last != '\n';
}

void EventFile::write(std::string_view line) {
  const Status status = [&]() -> Status {
    HVD_FAILPOINT_RETURN("events.write");
    return file_.add(line);
  }();
  if (status.is_ok()) return;
  if (lost_lines_++ == 0) {
    on_loss_("cannot write to " + file_.name + ": " + status.message() +
             "; the job goes on, and later events are tried");
  }
}

}  // namespace hvd::launcher
