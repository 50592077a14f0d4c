#include "launcher/job/stack_service.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime/base/deadline.h"

namespace hvd::launcher {
namespace {

// An abstract name: nothing is left behind, and nothing of another user can be in its place, for that one is seen.
struct JobAddress {
  sockaddr_un address = {};
  socklen_t size = 0;

  JobAddress(uid_t owner, int job) {
    const std::string name = "hvd-job-" + std::to_string(owner) + "-" + std::to_string(job);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

ucred peer_of(int fd) {
  ucred peer = {.pid = -1, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t size = sizeof(peer);
  ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer;
}

int fail(const std::string& text) {
  std::fprintf(stderr, "horovodrun: --stacks: %s\n", text.c_str());
  return 1;
}

// What comes until the other end closes goes to stdout; false when that is nothing, or takes too long.
bool copy_to_stdout(int fd, Deadline deadline) {
  std::array<char, 65536> chunk{};
  for (bool any = false;; any = true) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(deadline.remaining().count())) != 1) return false;
    const ssize_t size = ::read(fd, chunk.data(), chunk.size());
    if (size <= 0) return any && size == 0;
    std::fwrite(chunk.data(), 1, static_cast<std::size_t>(size), stdout);
  }
}

}  // namespace

StackService::StackService(MainLoop& loop, std::function<std::set<int>()> ask)
    : loop_(loop), ask_(std::move(ask)), patience_(loop.get(), [this] { answer(); }) {}

Result<std::unique_ptr<StackService>> StackService::open(MainLoop& loop, std::function<std::set<int>()> ask) {
  std::unique_ptr<StackService> self(new StackService(loop, std::move(ask)));
  self->listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const JobAddress name(::geteuid(), ::getpid());
  const int fd = self->listener_.get();
  if (fd < 0 || ::bind(fd, name.get(), name.size) != 0 || ::listen(fd, kMaxClients) != 0) {
    return Status::from_errno("the socket for --stacks", errno);
  }
  self->poll_ = std::make_unique<loop::Poll>(loop.get(), fd, [raw = self.get()](bool, bool) { raw->accept_one(); });
  self->poll_->watch(true, false);
  return self;
}

void StackService::accept_one() {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) return;
  const uid_t user = peer_of(fd.get()).uid;
  if (user != ::geteuid() && user != 0) return;
  std::erase_if(answered_, [](const auto& one) { return one->broken() || one->queued() == 0; });
  if (waiting_.size() + answered_.size() >= kMaxClients) return;
  auto client = PipeWriter::open(loop_, std::move(fd), {.on_progress = [this] { close_answered(); }, .on_error = {}});
  if (!client.is_ok()) return;
  waiting_.push_back(std::move(client).value());
  if (waiting_.size() > 1) return;  // the answer is under way
  asked_ = ask_();
  asked_.empty() ? answer() : patience_.start(kPatience);
}

void StackService::stacks(int rank, const std::string& who, const std::string& text) {
  if (waiting_.empty() || size_ > kMaxText) return;
  std::string& whole = texts_[rank];
  whole = who + ": " + text + "\n";
  size_ += whole.size();
}

void StackService::agent_answered(int agent) {
  if (asked_.erase(agent) > 0 && asked_.empty()) answer();
}

void StackService::answer() {
  patience_.stop();
  std::string text;
  for (const auto& [rank, one] : texts_) text += one;
  if (!asked_.empty()) text += std::to_string(asked_.size()) + " hosts have not answered\n";
  if (text.empty()) text = "no rank runs\n";
  for (auto& client : std::exchange(waiting_, {})) {
    client->write(Bytes(text.begin(), text.end()));
    answered_.push_back(std::move(client));
  }
  asked_.clear();
  texts_.clear();
  size_ = 0;
}

// All has been taken: that the answer is whole is seen by its end.
void StackService::close_answered() {
  for (const auto& client : answered_) {
    if (client->queued() == 0) client->close();
  }
}

int print_stacks(int job) {
  struct stat info = {};
  if (::stat(("/proc/" + std::to_string(job)).c_str(), &info) != 0) {
    return fail("there is no process " + std::to_string(job) + " on this host; expected that of a horovodrun");
  }
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const JobAddress name(info.st_uid, job);
  if (::connect(fd.get(), name.get(), name.size) != 0) {
    return fail("process " + std::to_string(job) + " is no horovodrun with a job (" + std::strerror(errno) + ")");
  }
  const ucred peer = peer_of(fd.get());
  if (peer.uid != info.st_uid || peer.pid != job) {
    return fail("the socket of job " + std::to_string(job) + " belongs to another process, " +
                std::to_string(peer.pid));
  }
  if (!copy_to_stdout(fd.get(), Deadline::after(2 * StackService::kPatience))) {
    return fail("process " + std::to_string(job) + " does not answer");
  }
  return 0;
}

}  // namespace hvd::launcher
