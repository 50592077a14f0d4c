#include "launcher/job/output_router.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace hvd::launcher {
namespace {

std::string padded(int rank, int num_proc) {
  std::string digits = std::to_string(rank);
  const std::size_t width = std::to_string(num_proc - 1).size();
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

// mkdir -p, with mode 0700 for what is new.
Status make_directories(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return Status::ok();
  HVD_RETURN_IF_ERROR(make_directories(path.parent_path()));
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return Status::ok();
  return Status::from_errno("--output-filename: cannot make the directory " + path.string(), errno);
}

}  // namespace

OutputRouter::OutputRouter(MainLoop& loop, const Options& options, const Callbacks& callbacks)
    : stdout_(loop, STDOUT_FILENO, {.on_progress = callbacks.on_progress, .on_error = callbacks.on_broken}),
      stderr_(loop, STDERR_FILENO, {.on_progress = callbacks.on_progress, .on_error = callbacks.on_broken}) {
  for (int rank = 0; rank < options.num_proc; ++rank) {
    ranks_.push_back({.streams = {Stream{LinePrefixer(rank_prefix(rank, false, options.with_time)), {}, {}},
                                  Stream{LinePrefixer(rank_prefix(rank, true, options.with_time)), {}, {}}},
                      .stderr_tail = {}});
  }
}

Status OutputRouter::open_files(const std::string& directory) {
  const int num_proc = static_cast<int>(ranks_.size());
  for (int rank = 0; rank < num_proc; ++rank) {
    const std::filesystem::path folder =
        std::filesystem::path(directory) / ("rank." + padded(rank, num_proc));
    HVD_RETURN_IF_ERROR(make_directories(folder));
    for (int i : {0, 1}) {
      Stream& stream = ranks_[static_cast<std::size_t>(rank)].streams[static_cast<std::size_t>(i)];
      stream.file_name = (folder / (i == 0 ? "stdout" : "stderr")).string();
      stream.file = Fd(::open(stream.file_name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      if (!stream.file.valid()) {
        return Status::from_errno("--output-filename: cannot open " + stream.file_name, errno);
      }
    }
  }
  return Status::ok();
}

OutputRouter::Stream* OutputRouter::stream_of(int rank, bool is_stderr) {
  if (rank < 0 || static_cast<std::size_t>(rank) >= ranks_.size()) return nullptr;
  return &ranks_[static_cast<std::size_t>(rank)].streams[is_stderr ? 1 : 0];
}

void OutputRouter::output(int rank, bool is_stderr, ByteSpan bytes) {
  Stream* stream = stream_of(rank, is_stderr);
  if (stream == nullptr) return;
  if (is_stderr) ranks_[static_cast<std::size_t>(rank)].stderr_tail.add(bytes);
  std::string text;
  stream->prefixer.feed(bytes, text);
  emit(*stream, is_stderr, text);
}

void OutputRouter::output_end(int rank, bool is_stderr) {
  Stream* stream = stream_of(rank, is_stderr);
  if (stream == nullptr) return;
  std::string text;
  stream->prefixer.finish(text);
  emit(*stream, is_stderr, text);
}

void OutputRouter::end_all() {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    output_end(rank, false);
    output_end(rank, true);
  }
}

void OutputRouter::emit(Stream& stream, bool is_stderr, const std::string& text) {
  if (text.empty()) return;
  (is_stderr ? stderr_ : stdout_).write(text);
  if (is_stderr) stderr_line_open_ = text.back() != '\n';
  if (!stream.file.valid()) return;
  const Status status = write_all(stream.file.get(), text.data(), text.size());
  if (status.is_ok()) return;
  stream.file.reset();  // say it once; the job and the console go on
  message("cannot write to " + stream.file_name + " any more: " + status.message());
}

void OutputRouter::message(std::string_view text) {
  const char* start = std::exchange(stderr_line_open_, false) ? "\nhorovodrun: " : "horovodrun: ";
  stderr_.write(start + std::string(text) + "\n");
}

std::vector<std::string> OutputRouter::last_stderr_lines(int rank, std::size_t max_lines) const {
  if (rank < 0 || static_cast<std::size_t>(rank) >= ranks_.size()) return {};
  return ranks_[static_cast<std::size_t>(rank)].stderr_tail.last_lines(max_lines);
}

}  // namespace hvd::launcher
