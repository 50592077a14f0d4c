#include "launcher/streams/output_router.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/output_file.h"

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
  return Status::from_errno("cannot make the directory " + path.string(), errno);
}

Status refuse_link(const std::string& name, int error) {
  if (error == ELOOP || error == ENOTDIR) return Status::precondition(name + " is a link or not a directory");
  return Status::from_errno("cannot open " + name, error);
}

// Root's link is as good as ours. Where the number may be another's, too, only if none but the folder's owner can have
// made it.
Status check_link(const std::filesystem::path& link, const struct stat& info) {
  if (info.st_uid == 0) return Status::ok();
  const std::filesystem::path folder = link.has_parent_path() ? link.parent_path() : ".";
  struct stat around = {};
  const bool is_closed = ::stat(folder.c_str(), &around) == 0 && (around.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (is_root(info.st_uid) && is_closed) return Status::ok();
  return check_owner(info, "the link " + link.string());
}

// Another user's link on the way, or behind one of ours, leads wherever he likes: to what is ours, too. What is not
// there will be made.
Status check_links(const std::string& directory) {
  namespace fs = std::filesystem;
  constexpr int kMost = 40;  // as the kernel has it, which then says ELOOP
  fs::path rest = directory;
  fs::path done;
  for (int links = 0; !rest.empty() && links < kMost;) {
    const fs::path next = done / *rest.begin();
    fs::path after;
    for (auto part = std::next(rest.begin()); part != rest.end(); ++part) after /= *part;
    struct stat info = {};
    if (::lstat(next.c_str(), &info) != 0) return Status::ok();
    if (!S_ISLNK(info.st_mode)) {
      done = next;
      rest = std::move(after);
      continue;
    }
    HVD_RETURN_IF_ERROR(check_link(next, info));
    std::error_code error;
    rest = fs::read_symlink(next, error) / after;
    ++links;
  }
  return Status::ok();
}

// Who owns the directory, or the link that stands for it, decides what is in it.
Status check_place(const std::string& directory) {
  HVD_RETURN_IF_ERROR(check_links(directory));
  struct stat info = {};
  for (const auto look : {&::lstat, &::stat}) {
    if (look(directory.c_str(), &info) != 0 || is_root(info.st_uid)) continue;
    HVD_RETURN_IF_ERROR(check_owner(info, directory));
  }
  return Status::ok();
}

// mkdir -p of `folder`, which is `directory` or in it. Between a look and what is made, another user may have put a
// link in what is his: nothing is opened behind one that is there now.
Status make_place(const std::string& directory, const std::string& folder) {
  HVD_RETURN_IF_ERROR(check_place(directory));
  HVD_RETURN_IF_ERROR(make_directories(folder));
  return check_place(directory);
}

Result<Fd> open_folder(const std::string& name) {
  Fd folder(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return refuse_link(name, errno);
  struct stat info = {};
  if (::fstat(folder.get(), &info) != 0) return Status::from_errno("cannot look at " + name, errno);
  HVD_RETURN_IF_ERROR(check_owner(info, name));
  return folder;
}

Result<Fd> open_file(const Fd& folder, const char* base, const std::string& name) {
  HVD_ASSIGN_OR_RETURN(Fd file, open_own_file(folder, base, name, O_WRONLY | O_APPEND));
  if (::ftruncate(file.get(), 0) != 0) return Status::from_errno("cannot empty " + name, errno);
  return file;
}

Result<std::array<OutputFile, 2>> open_pair(const std::string& directory, int rank, int num_proc) {
  const std::string folder_name = (std::filesystem::path(directory) / ("rank." + padded(rank, num_proc))).string();
  HVD_FAILPOINT_RETURN("files.open");
  HVD_RETURN_IF_ERROR(make_place(directory, folder_name));
  HVD_ASSIGN_OR_RETURN(const Fd folder, open_folder(folder_name));
  std::array<OutputFile, 2> files;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const char* base = i == 0 ? "stdout" : "stderr";
    files[i].name = folder_name + "/" + base;
    HVD_ASSIGN_OR_RETURN(files[i].fd, open_file(folder, base, files[i].name));
  }
  return files;
}

}  // namespace

Status OutputFile::add(std::string_view text) {
  std::string whole = is_cut ? "\n" : "";
  whole += text;
  std::size_t taken = 0;
  const Status status = [&]() -> Status {
    while (taken < whole.size()) {
      const ssize_t n = ::write(fd.get(), whole.data() + taken, whole.size() - taken);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Status::from_errno("write", n < 0 ? errno : ENOSPC);
      taken += static_cast<std::size_t>(n);
    }
    return Status::ok();
  }();
  if (taken > 0) is_cut = !status.is_ok() && whole[taken - 1] != '\n';
  lost_bytes += whole.size() - taken;
  return status;
}

Result<std::array<OutputFile, 2>> open_output_files(const std::string& directory, int rank, int num_proc) {
  Result<std::array<OutputFile, 2>> files = open_pair(directory, rank, num_proc);
  if (!files.is_ok()) return files.status().annotate("--output-filename");
  return files;
}

Result<OutputFile> open_events_file(const std::string& path) {
  OutputFile file{.fd = {}, .name = path};
  const Status status = [&]() -> Status {
    const std::filesystem::path full(path);
    const std::string directory = full.has_parent_path() ? full.parent_path().string() : ".";
    if (!full.has_filename()) return Status::invalid_argument(path + " is a folder: expected the name of a file");
    if (path == "-") {
      return Status::invalid_argument(
          "expected the name of a file, got -: standard output has what the ranks print (./- is the file of that "
          "name)");
    }
    HVD_RETURN_IF_ERROR(check_place(directory));
    const Fd folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid()) return Status::from_errno("cannot open the directory " + directory, errno);
    HVD_ASSIGN_OR_RETURN(file.fd, open_own_file(folder, full.filename().c_str(), path, O_RDWR | O_APPEND));
    return Status::ok();
  }();
  if (!status.is_ok()) return status.annotate("--events");
  return file;
}

Result<OutputFile> open_summary_file(const std::string& directory) {
  OutputFile file{.fd = {}, .name = (std::filesystem::path(directory) / "summary.json").string()};
  const Status status = [&]() -> Status {
    HVD_RETURN_IF_ERROR(make_place(directory, directory));
    const Fd folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.valid()) return refuse_link(directory, errno);
    HVD_ASSIGN_OR_RETURN(file.fd, open_file(folder, "summary.json", file.name));
    return Status::ok();
  }();
  if (!status.is_ok()) return status.annotate("--log-dir");
  return file;
}

}  // namespace hvd::launcher
