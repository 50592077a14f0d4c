#include "starters/pmi_channel.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <cstdint>
#include <span>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/wipe.h"

namespace hvd::starters {
namespace {

constexpr std::string_view kKey = "horovod";
constexpr Millis kGoodbye{2000};  // a manager answers within a millisecond; one that does not must not hold us up

std::span<std::uint8_t> room_of(std::string& text) {
  return {reinterpret_cast<std::uint8_t*>(text.data()), text.size()};
}

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

}  // namespace

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

// `line` is the caller's to wipe, whatever has come.
Status PmiSocket::read_line(std::string& line, const Deadline& deadline, int wake_fd) const {
  line.assign(kMaxPmiLine + 1, '\0');  // with its end
  const std::span<std::uint8_t> room = room_of(line);
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

Status PmiSocket::read_block(std::string& block, const Deadline& deadline, int wake_fd) const {
  std::string head(kPmiBlockHead, '\0');
  HVD_RETURN_IF_ERROR(receive_exactly(fd_, room_of(head), deadline, wake_fd));
  HVD_ASSIGN_OR_RETURN(const std::size_t size, pmi_block_size(head));
  block.assign(size, '\0');
  return receive_exactly(fd_, room_of(block), deadline, wake_fd);
}

Result<PmiLine> PmiSocket::ask(Form form, const PmiWords& request, std::string_view answer, const Deadline& deadline,
                               int wake_fd) {
  if (inode_ == 0) inode_ = inode_of(fd_);
  const bool is_line = form == Form::kLine;
  std::string text = is_line ? pmi_request(request) : pmi_block(request);
  std::string got;
  const auto exchange = [&]() -> Result<PmiLine> {
    HVD_RETURN_IF_ERROR(send_all(fd_, as_bytes(text), deadline, wake_fd));
    HVD_RETURN_IF_ERROR(is_line ? read_line(got, deadline, wake_fd) : read_block(got, deadline, wake_fd));
    HVD_ASSIGN_OR_RETURN(PmiLine parsed, is_line ? PmiLine::parse(got) : PmiLine::parse_block(got));
    const std::string& rc = parsed["rc"];
    if (parsed["cmd"] == answer && (rc.empty() || rc == "0")) return parsed;
    return Status::internal("the answer to " + std::string(request.front().second) + " is " + parsed["cmd"] + ", rc " +
                            rc + ", " + parsed[is_line ? "msg" : "errmsg"]);
  };
  auto parsed = exchange();
  wipe(text);
  wipe(got);
  if (!parsed.is_ok()) return parsed.status().annotate(std::string(request.front().second)).annotate(owner_);
  return parsed;
}

void PmiSocket::say_goodbye(Form form, std::string_view answer) {
  if (inode_ == 0 || inode_of(fd_) != inode_ || mpi_is_in_charge()) return;
  const auto said = ask(form, {{"cmd", "finalize"}}, answer, Deadline::after(kGoodbye), -1);
  if (!said.is_ok()) HVD_LOG(kDebug, "no goodbye", log_field("why", said.status().message()));
  inode_ = 0;
}

Result<PmiLine> PmiChannel::ask(const PmiWords& request, std::string_view answer, const Wait& wait) {
  return socket_.ask(PmiSocket::Form::kLine, request, answer, wait.deadline, wait.wake_fd);
}

Status PmiChannel::open(const Wait& wait) {
  HVD_RETURN_IF_ERROR(
      ask({{"cmd", "init"}, {"pmi_version", "1"}, {"pmi_subversion", "1"}}, "response_to_init", wait).status());
  HVD_ASSIGN_OR_RETURN(const PmiLine space, ask({{"cmd", "get_my_kvsname"}}, "my_kvsname", wait));
  space_ = space["kvsname"];
  return space_.empty() ? Status::internal(name() + ": it has no name") : Status::ok();
}

Status PmiChannel::put(const std::string& text, const Wait& wait) {
  return ask({{"cmd", "put"}, {"kvsname", space_}, {"key", kKey}, {"value", text}}, "put_result", wait).status();
}

Status PmiChannel::pass_fence(const Wait& wait) { return ask({{"cmd", "barrier_in"}}, "barrier_out", wait).status(); }

Result<std::string> PmiChannel::get(const Wait& wait) {
  HVD_ASSIGN_OR_RETURN(const PmiLine answer,
                       ask({{"cmd", "get"}, {"kvsname", space_}, {"key", kKey}}, "get_result", wait));
  return answer["value"];
}

Result<PmiLine> Pmi2Channel::ask(const PmiWords& request, const Wait& wait) {
  const std::string answer = std::string(request.front().second) + "-response";
  return socket_.ask(PmiSocket::Form::kBlock, request, answer, wait.deadline, wait.wake_fd);
}

// The greeting is a line as of PMI-1, which says that blocks follow.
Status Pmi2Channel::open(const Wait& wait) {
  if (is_open_) return Status::ok();
  HVD_ASSIGN_OR_RETURN(
      const PmiLine answer,
      socket_.ask(PmiSocket::Form::kLine, {{"cmd", "init"}, {"pmi_version", "2"}, {"pmi_subversion", "0"}},
                  "response_to_init", wait.deadline, wait.wake_fd));
  if (answer["pmi_version"] != "2") {
    return Status::internal(name() + ": it speaks version " + answer["pmi_version"] + ", expected 2");
  }
  const std::string rank = std::to_string(rank_);
  HVD_ASSIGN_OR_RETURN(const PmiLine full,
                       ask({{"cmd", "fullinit"}, {"pmijobid", job_}, {"pmirank", rank}, {"threaded", "FALSE"}}, wait));
  if (full["rank"] != rank) {
    return Status::internal(name() + ": it takes this process for rank " + full["rank"] + ", expected " + rank);
  }
  is_open_ = true;
  return Status::ok();
}

Status Pmi2Channel::put(const std::string& text, const Wait& wait) {
  return ask({{"cmd", "kvs-put"}, {"key", kKey}, {"value", text}}, wait).status();
}

Status Pmi2Channel::pass_fence(const Wait& wait) { return ask({{"cmd", "kvs-fence"}}, wait).status(); }

Result<std::string> Pmi2Channel::get(const Wait& wait) {
  HVD_ASSIGN_OR_RETURN(const PmiLine answer,
                       ask({{"cmd", "kvs-get"}, {"jobid", job_}, {"srcid", "-1"}, {"key", kKey}}, wait));
  if (answer["found"] != "TRUE") return Status::internal(name() + ": rank 0 has put nothing there");
  return answer["value"];
}

}  // namespace hvd::starters
