#include "runtime/base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace hvd {
namespace {

struct Opened {
  Fd file;
  struct stat info = {};
};

Result<Opened> open_and_look(int folder, const char* base, const std::string& name, int flags) {
  Opened opened{.file = Fd(::openat(folder, base, flags | O_NONBLOCK | O_CLOEXEC, 0666))};
  if (!opened.file.valid() && errno == ELOOP) return Status::precondition(name + " is a symbolic link");
  if (!opened.file.valid()) return Status::from_errno("cannot open " + name, errno);
  if (::fstat(opened.file.get(), &opened.info) != 0) return Status::from_errno("cannot look at " + name, errno);
  return opened;
}

Status check_plain(const struct stat& info, const std::string& name) {
  if (S_ISREG(info.st_mode) && info.st_nlink == 1) return Status::ok();
  return Status::precondition(name + " is not a plain file with one name");
}

// Where root alone makes links, and where they stand for open files. Not /dev/shm.
bool is_in_system_folder(std::string_view name) {
  const std::string_view folder = name.substr(0, name.rfind('/') + 1);
  return folder == "/dev/" || folder == "/dev/fd/" || folder == "/proc/self/fd/";
}

}  // namespace

Status check_owner(const struct stat& info, const std::string& name) {
  if (info.st_uid == ::geteuid()) return Status::ok();
  return Status::precondition(name + " belongs to user " + std::to_string(info.st_uid) + ", not to you (" +
                              std::to_string(::geteuid()) + ")");
}

Result<Fd> open_own_file(const Fd& folder, const char* base, const std::string& name, int flags) {
  HVD_ASSIGN_OR_RETURN(Opened opened, open_and_look(folder.get(), base, name, flags | O_CREAT | O_NOFOLLOW));
  HVD_RETURN_IF_ERROR(check_plain(opened.info, name));
  HVD_RETURN_IF_ERROR(check_owner(opened.info, name));
  return std::move(opened.file);
}

Result<Fd> open_emptied(const std::string& name) {
  const int how = is_in_system_folder(name) ? O_WRONLY : O_WRONLY | O_CREAT | O_NOFOLLOW;
  HVD_ASSIGN_OR_RETURN(Opened opened, open_and_look(AT_FDCWD, name.c_str(), name, how));
  if (S_ISCHR(opened.info.st_mode) || is_in_system_folder(name)) return std::move(opened.file);
  if (!S_ISFIFO(opened.info.st_mode)) HVD_RETURN_IF_ERROR(check_plain(opened.info, name));
  // On some mounts all files are root's, who could read and change this one anyhow.
  if (opened.info.st_uid != 0) HVD_RETURN_IF_ERROR(check_owner(opened.info, name));
  if (S_ISREG(opened.info.st_mode) && ::ftruncate(opened.file.get(), 0) != 0) {
    return Status::from_errno("cannot empty " + name, errno);
  }
  return std::move(opened.file);
}

}  // namespace hvd
