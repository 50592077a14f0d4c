#include "starters/shared_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/base/socket_io.h"
#include "runtime/base/wipe.h"
#include "runtime/crypto/hash.h"
#include "starters/announcement.h"

namespace hvd::starters {
namespace {

constexpr Millis kFirstPause{5};
constexpr Millis kLongestPause{250};
constexpr int kAttempts = 10;  // to take a name that others take in the same moment
constexpr std::size_t kNameBytes = 16;

std::string file_of(const std::string& job) {
  const crypto::Digest digest = crypto::sha256(as_bytes(job));
  return "job-" + to_hex(ByteSpan(digest).first(kNameBytes));
}

std::string mode_text(mode_t mode) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%04o", mode & 07777U);
  return text.data();
}

// Ours alone: nobody else could have put something there, or can read what we put.
Status check_private(const Fd& fd, bool is_folder) {
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return Status::from_errno("fstat", errno);
  if (!is_folder && !S_ISREG(info.st_mode)) return Status::precondition("not a regular file");
  if (info.st_uid != geteuid()) {
    return Status::precondition("belongs to uid " + std::to_string(info.st_uid) + ", expected the own uid " +
                                std::to_string(geteuid()));
  }
  if ((info.st_mode & 077U) == 0) return Status::ok();
  return Status::precondition("has mode " + mode_text(info.st_mode) +
                              ", expected no permission for group and others (chmod " + (is_folder ? "700)" : "600)"));
}

Result<std::optional<std::string>> read_file(const Fd& folder, const std::string& file) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const Fd fd(openat(folder.get(), file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid() && (errno == ENOENT || errno == ESTALE)) return std::optional<std::string>();
  if (!fd.valid()) return Status::precondition(file + ": " + strerrordesc_np(errno));
  HVD_RETURN_IF_ERROR(check_private(fd, false).annotate(file));
  std::string text(2 * kMaxAnnouncementChars, '\0');
  const ssize_t size = read(fd.get(), text.data(), text.size());  // it is there as a whole
  if (size < 0) return Status::from_errno(file, errno);
  text.resize(static_cast<std::size_t>(size));
  return std::optional<std::string>(std::move(text));
}

Result<std::string> write_temporary(const Fd& folder, const std::string& file, const std::string& text) {
  std::array<std::uint8_t, 8> random{};
  crypto::random_bytes(random);
  std::string name = "." + file + "." + to_hex(random);
  const Fd fd(openat(folder.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Status::precondition(std::string("a new file: ") + strerrordesc_np(errno));
  Status written = write_all(fd.get(), text.data(), text.size());
  if (written.is_ok() && fsync(fd.get()) != 0) written = Status::from_errno("fsync", errno);
  if (written.is_ok()) return name;
  unlinkat(folder.get(), name.c_str(), 0);
  return written;
}

}  // namespace

SharedFolder::SharedFolder(std::string path, const std::string& job, Answers answers, std::string why)
    : path_(std::move(path)), file_(file_of(job)), answers_(std::move(answers)), why_(std::move(why)) {}

Result<Fd> SharedFolder::open_folder() const {
  if (!path_.starts_with('/')) {
    return Status::precondition("HOROVOD_SHARED_DIR=" + path_ + " is not an absolute path");
  }
  if (mkdir(path_.c_str(), 0700) != 0 && errno == ENOENT) {
    mkdir(path_.substr(0, path_.rfind('/')).c_str(), 0700);
    mkdir(path_.c_str(), 0700);
  }
  Fd folder(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!folder.valid()) return Status::precondition(name() + ": " + strerrordesc_np(errno));
  HVD_RETURN_IF_ERROR(check_private(folder, true).annotate(name()));
  return folder;
}

Status SharedFolder::announce(const std::string& text, const Deadline& deadline, int wake_fd) {
  std::ignore = deadline;  // nothing here waits
  std::ignore = wake_fd;
  HVD_ASSIGN_OR_RETURN(const Fd folder, open_folder());
  const auto temporary = write_temporary(folder, file_, text);
  if (!temporary.is_ok()) return temporary.status().annotate(name());
  const Status linked = link_or_replace(folder, temporary.value());
  unlinkat(folder.get(), temporary.value().c_str(), 0);
  if (linked.is_ok()) announced_ = text;
  return linked.annotate(name());
}

Status SharedFolder::link_or_replace(const Fd& folder, const std::string& temporary) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (linkat(folder.get(), temporary.c_str(), folder.get(), file_.c_str(), 0) == 0) return Status::ok();
    if (errno != EEXIST) return Status::precondition(file_ + ": " + strerrordesc_np(errno));
    HVD_ASSIGN_OR_RETURN(auto existing, read_file(folder, file_));
    if (!existing) continue;
    const bool is_alive = answers_(*existing);
    wipe(*existing);
    if (is_alive) {
      return Status::precondition("rank 0 of another job with the same name waits there for its ranks (" + file_ +
                                  "); give one of the two another HOROVOD_JOB_ID");
    }
    unlinkat(folder.get(), file_.c_str(), 0);
  }
  return Status::internal("others take " + file_ + " again and again");
}

// There is no notice of a file that another host makes, so it is looked for again and again.
Result<std::string> SharedFolder::find(const Deadline& deadline, int wake_fd) {
  for (Millis pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    HVD_ASSIGN_OR_RETURN(const Fd folder, open_folder());
    auto found = read_file(folder, file_);
    if (!found.is_ok()) return found.status().annotate(name());
    if (found.value()) return *std::move(found.value());
    if (deadline.expired()) {
      return Status::timeout("rank 0 has announced nothing in " + name() + " (" + file_ +
                             "); is it the same on all hosts? HOROVOD_SHARED_DIR names another one");
    }
    HVD_RETURN_IF_ERROR(pause_for(pause, deadline, wake_fd));
  }
}

void SharedFolder::forget() {
  if (announced_.empty()) return;
  const auto folder = open_folder();
  if (folder.is_ok()) {
    auto present = read_file(folder.value(), file_);
    if (present.is_ok() && present.value()) {
      if (*present.value() == announced_) unlinkat(folder.value().get(), file_.c_str(), 0);  // or it is the next job's
      wipe(*present.value());
    }
  }
  wipe(announced_);
}

}  // namespace hvd::starters
