#include "starters/pmi_channel.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/base/socket_io.h"
#include "starters/announcement.h"

namespace hvd::starters {
namespace {

constexpr std::string_view kKey = "horovod";
constexpr Millis kGoodbye{2000};  // a manager answers within a millisecond; one that does not must not hold us up

unsigned long inode_of(int fd) {
  struct stat info{};
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// Calls a function `int f(int*)` of the MPI library, if one is in this process: each has them by these names.
bool mpi_says(void* library, const char* question) {
  using Question = int (*)(int*);
  int answer = 0;
  const auto ask = reinterpret_cast<Question>(dlsym(library, question));
  return ask != nullptr && ask(&answer) == 0 && answer != 0;
}

// Whether an MPI library of this process has been initialised: saying goodbye is then its own.
bool mpi_is_in_charge() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        const std::string_view name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        const std::string_view file = name.substr(name.rfind('/') + 1);
        if (!file.starts_with("libmpi.") && !file.starts_with("libmpich.")) return 0;
        *static_cast<std::string*>(out) = name;
        return 1;
      },
      &path);
  if (path.empty()) return false;
  void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  const bool initialised = mpi_says(library, "MPI_Initialized");
  dlclose(library);
  return initialised;
}

}  // namespace

// `line` is the caller's to wipe, whatever has come.
Status PmiChannel::read_line(std::string& line, const Deadline& deadline, int wake_fd) {
  line.assign(kMaxPmiLine + 1, '\0');  // with its end
  const std::span<std::uint8_t> room(reinterpret_cast<std::uint8_t*>(line.data()), line.size());
  for (std::size_t filled = 0; filled < line.size();) {
    HVD_ASSIGN_OR_RETURN(const std::size_t size, receive_some(fd_, room.subspan(filled), deadline, wake_fd));
    const std::size_t end = std::string_view(line).substr(0, filled + size).find('\n', filled);
    filled += size;
    if (end == std::string_view::npos) continue;
    if (end + 1 != filled) return Status::internal("more than one answer");
    line.resize(end);
    return Status::ok();
  }
  return Status::internal("an answer without an end");
}

Result<PmiLine> PmiChannel::ask(const Words& request, std::string_view answer, const Deadline& deadline, int wake_fd) {
  std::string text = pmi_request(request);
  std::string line;
  const auto exchange = [&]() -> Result<PmiLine> {
    HVD_RETURN_IF_ERROR(send_all(fd_, as_bytes(text), deadline, wake_fd));
    HVD_RETURN_IF_ERROR(read_line(line, deadline, wake_fd));
    HVD_ASSIGN_OR_RETURN(PmiLine parsed, PmiLine::parse(line));
    const std::string& rc = parsed["rc"];
    if (parsed["cmd"] == answer && (rc.empty() || rc == "0")) return parsed;
    return Status::internal("the answer to " + std::string(request.front().second) + " is " + parsed["cmd"] + ", rc " +
                            rc + ", " + parsed["msg"]);
  };
  auto parsed = exchange();
  wipe(text);
  wipe(line);
  if (!parsed.is_ok()) return parsed.status().annotate(std::string(request.front().second)).annotate(name());
  return parsed;
}

Result<std::string> PmiChannel::open(const Deadline& deadline, int wake_fd) {
  inode_ = inode_of(fd_);
  HVD_RETURN_IF_ERROR(
      ask({{"cmd", "init"}, {"pmi_version", "1"}, {"pmi_subversion", "1"}}, "response_to_init", deadline, wake_fd)
          .status());
  HVD_ASSIGN_OR_RETURN(const PmiLine space, ask({{"cmd", "get_my_kvsname"}}, "my_kvsname", deadline, wake_fd));
  if (space["kvsname"].empty()) return Status::internal(name() + ": it has no name");
  return space["kvsname"];
}

Status PmiChannel::pass_barrier(const Deadline& deadline, int wake_fd) {
  const Status passed = ask({{"cmd", "barrier_in"}}, "barrier_out", deadline, wake_fd).status();
  if (passed.code() != StatusCode::kTimeout) return passed;
  return Status::timeout(name() + ": not every process of the job has come to hvd.init() in time");
}

Status PmiChannel::announce(const std::string& text, const Deadline& deadline, int wake_fd) {
  HVD_ASSIGN_OR_RETURN(const std::string space, open(deadline, wake_fd));
  HVD_RETURN_IF_ERROR(
      ask({{"cmd", "put"}, {"kvsname", space}, {"key", kKey}, {"value", text}}, "put_result", deadline, wake_fd)
          .status());
  return pass_barrier(deadline, wake_fd);
}

Result<std::string> PmiChannel::find(const Deadline& deadline, int wake_fd) {
  if (!found_.empty()) return found_;
  HVD_ASSIGN_OR_RETURN(const std::string space, open(deadline, wake_fd));
  HVD_RETURN_IF_ERROR(pass_barrier(deadline, wake_fd));
  HVD_ASSIGN_OR_RETURN(const PmiLine answer,
                       ask({{"cmd", "get"}, {"kvsname", space}, {"key", kKey}}, "get_result", deadline, wake_fd));
  found_ = answer["value"];
  return found_;
}

void PmiChannel::forget() { wipe(found_); }

void PmiChannel::leave() {
  if (inode_ == 0 || inode_of(fd_) != inode_ || mpi_is_in_charge()) return;
  inode_ = 0;
  const auto answer = ask({{"cmd", "finalize"}}, "finalize_ack", Deadline::after(kGoodbye), -1);
  if (!answer.is_ok()) HVD_LOG(kDebug, "no goodbye", log_field("why", answer.status().message()));
}

}  // namespace hvd::starters
