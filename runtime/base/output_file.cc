#include "runtime/base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string_view>

namespace hvd {
namespace {

struct Opened {
  Fd file;
  bool is_new = false;  // made here: nobody else's, whatever number the mount gives its owner
  struct stat info = {};
};

Result<Opened> open_and_look(int folder, const char* base, const std::string& name, int flags) {
  const int how = flags | O_NONBLOCK | O_CLOEXEC;
  Opened opened;
  if ((flags & O_CREAT) != 0) opened.file = Fd(::openat(folder, base, how | O_EXCL, 0666));
  opened.is_new = opened.file.valid();
  if (!opened.is_new) opened.file = Fd(::openat(folder, base, how, 0666));
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

bool namespace_knows_root() {
  std::ifstream map("/proc/self/uid_map");
  bool is_empty = true;
  for (std::int64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count; is_empty = false) {
    if (inside == 0) return true;
  }
  return is_empty;  // no /proc, no user namespaces: nothing is excused
}

}  // namespace

bool is_root(uid_t owner) {
  if (owner == 0) return true;
  static const std::int64_t unknown = [] {
    std::int64_t number = -1;
    if (!namespace_knows_root()) std::ifstream("/proc/sys/kernel/overflowuid") >> number;
    return number;
  }();
  return owner == unknown;
}

Status check_owner(const struct stat& info, const std::string& name) {
  if (info.st_uid == ::geteuid()) return Status::ok();
  return Status::precondition(name + " belongs to user " + std::to_string(info.st_uid) + ", not to you (" +
                              std::to_string(::geteuid()) + ")");
}

Result<Fd> open_own_file(const Fd& folder, const char* base, const std::string& name, int flags) {
  HVD_ASSIGN_OR_RETURN(Opened opened, open_and_look(folder.get(), base, name, flags | O_CREAT | O_NOFOLLOW));
  if (opened.is_new) return std::move(opened.file);
  HVD_RETURN_IF_ERROR(check_plain(opened.info, name));
  HVD_RETURN_IF_ERROR(check_owner(opened.info, name));
  return std::move(opened.file);
}

Result<Fd> open_emptied(const std::string& name) {
  const int how = is_in_system_folder(name) ? O_WRONLY : O_WRONLY | O_CREAT | O_NOFOLLOW;
  HVD_ASSIGN_OR_RETURN(Opened opened, open_and_look(AT_FDCWD, name.c_str(), name, how));
  if (opened.is_new || S_ISCHR(opened.info.st_mode) || is_in_system_folder(name)) return std::move(opened.file);
  if (!S_ISFIFO(opened.info.st_mode)) HVD_RETURN_IF_ERROR(check_plain(opened.info, name));
  // On some mounts all files are root's, who could read and change this one anyhow.
  if (!is_root(opened.info.st_uid)) HVD_RETURN_IF_ERROR(check_owner(opened.info, name));
  if (S_ISREG(opened.info.st_mode) && ::ftruncate(opened.file.get(), 0) != 0) {
    return Status::from_errno("cannot empty " + name, errno);
  }
  return std::move(opened.file);
}

}  // namespace hvd
