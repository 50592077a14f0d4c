#include "runtime/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "runtime/base/fd.h"

namespace hvd {

namespace {

// Some editors begin UTF-8 by a byte order mark, which would be part of the first word.
std::string without_mark(std::string text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

}  // namespace

Result<std::string> read_input(const std::string& path, const std::string& what, std::size_t limit, InputKind kind) {
  const auto error = [&what] { return Status::invalid_argument(Status::from_errno(what, errno).message()); };
  const bool may_wait = kind == InputKind::kFileOrPipe;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (may_wait ? 0 : O_NONBLOCK)));
  if (!file.valid()) return error();
  struct stat info{};
  if (!may_wait && (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))) {
    return Status::invalid_argument(what + ": is no regular file, and only such a file can be read again and again");
  }
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return error();
    if (count == 0) return without_mark(std::move(text));
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > limit) {
      return Status::invalid_argument(what + ": longer than " + std::to_string(limit >> 20) + " MiB");
    }
  }
}

std::optional<std::string> content_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string boot_id() {
  const std::string text = content_of("/proc/sys/kernel/random/boot_id").value_or("");
  return text.substr(0, text.find('\n'));
}

std::string link_target(const std::string& path) {
  std::error_code error;
  return std::filesystem::read_symlink(path, error).string();
}

}  // namespace hvd
