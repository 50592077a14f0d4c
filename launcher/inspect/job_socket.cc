#include "launcher/inspect/job_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <utility>

#include "runtime/base/deadline.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/letters.h"
#include "runtime/base/socket_io.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxWord = 64;
constexpr std::size_t kMaxAnswer = std::size_t{64} << 20;
constexpr Millis kPauseAfterFailure{100};

// Nothing of another user can be in its place, for that one is seen.
AbstractAddress address_of(uid_t owner, int job) {
  return AbstractAddress("hvd-job-" + std::to_string(owner) + "-" + std::to_string(job));
}

int fail(const std::string& word, const std::string& text) {
  std::fprintf(stderr, "horovodrun: --%s: %s\n", word.c_str(), text.c_str());
  return 1;
}

struct Received {
  std::string text;
  Status end;  // why it is not all that the other end had
};

Received read_answer(int fd, Deadline deadline) {
  Received received;
  std::array<char, 65536> chunk{};
  for (;;) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const bool is_in_time = ::poll(&ready, 1, static_cast<int>(deadline.remaining().count())) == 1;
    const ssize_t size = is_in_time ? ::read(fd, chunk.data(), chunk.size()) : -1;
    if (size == 0 && !received.text.empty()) return received;
    if (size <= 0) {
      received.end = Status::timeout("does not answer");
      return received;
    }
    received.text.append(chunk.data(), static_cast<std::size_t>(size));
    if (received.text.size() <= kMaxAnswer) continue;
    received.text.resize(kMaxAnswer);
    received.end = Status::invalid_argument("answers with more than " + std::to_string(kMaxAnswer >> 20) +
                                            " MiB, of which the rest is left out");
    return received;
  }
}

}  // namespace

// One question: first its word is read, then the answer written. A client that goes away is forgotten at the deadline,
// or when the answer cannot be written.
class JobSocket::Client {
 public:
  Client(JobSocket& owner, std::uint64_t number, Fd fd)
      : owner_(owner),
        number_(number),
        fd_(std::move(fd)),
        poll_(owner.loop_.get(), fd_.get(), [this](bool, bool) { progress(); }),
        deadline_(owner.loop_.get(), [this] { owner_.forget(this); }) {
    deadline_.start(kDeadline);
    poll_.watch(true, false);
  }

  std::uint64_t number() const { return number_; }
  void answer(const std::string& whole) {
    answer_ = whole;
    poll_.watch(false, true);
  }

 private:
  void progress() {
    if (is_asking_ ? !read() : !write()) owner_.forget(this);
  }

  // False when nothing more is to be done.
  bool read() {
    std::array<char, kMaxWord> part{};
    const ssize_t n = ::recv(fd_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    word_.append(part.data(), static_cast<std::size_t>(n));
    const std::size_t end = word_.find('\n');
    if (end == std::string::npos) return n > 0 && word_.size() < kMaxWord;
    is_asking_ = false;
    poll_.watch(false, false);
    const auto reply = [&owner = owner_, number = number_](const std::string& text, bool complete) {
      owner.reply(number, (complete ? "0" : "1") + text);
    };
    return owner_.answer_(word_.substr(0, end), reply);
  }

  bool write() {
    const ssize_t n = ::send(fd_.get(), answer_.data() + sent_, answer_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<std::size_t>(n);
    return sent_ < answer_.size();
  }

  JobSocket& owner_;
  const std::uint64_t number_;
  const Fd fd_;
  loop::Poll poll_;
  loop::Timer deadline_;
  bool is_asking_ = true;
  std::string word_;
  std::string answer_;
  std::size_t sent_ = 0;
};

JobSocket::JobSocket(MainLoop& loop, Answer answer)
    : loop_(loop), answer_(std::move(answer)), pause_(loop.get(), [this] { poll_->watch(true, false); }) {}
JobSocket::~JobSocket() = default;

Result<std::unique_ptr<JobSocket>> JobSocket::open(MainLoop& loop, Answer answer) {
  HVD_FAILPOINT_RETURN("status.listen");
  std::unique_ptr<JobSocket> self(new JobSocket(loop, std::move(answer)));
  self->listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress name = address_of(::geteuid(), ::getpid());
  const int fd = self->listener_.get();
  if (fd < 0 || ::bind(fd, name.get(), name.size()) != 0 || ::listen(fd, kMaxClients) != 0) {
    return Status::from_errno("--stacks and --status cannot ask this job: its socket", errno);
  }
  self->poll_ = std::make_unique<loop::Poll>(loop.get(), fd, [raw = self.get()](bool, bool) { raw->accept_one(); });
  self->poll_->watch(true, false);
  return self;
}

void JobSocket::accept_one() {
  Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {  // as without descriptors: who waits still waits, so looking again at once would spin
    poll_->watch(false, false);
    return pause_.start(kPauseAfterFailure);
  }
  const Result<ucred> peer = peer_credentials(fd.get());
  if (!peer.is_ok() || (peer.value().uid != ::geteuid() && peer.value().uid != 0)) return;
  if (clients_.size() >= kMaxClients) return;
  clients_.push_back(std::make_unique<Client>(*this, ++last_client_, std::move(fd)));
}

void JobSocket::reply(std::uint64_t client, const std::string& answer) {
  const auto found = std::ranges::find_if(clients_, [client](const auto& one) { return one->number() == client; });
  if (found != clients_.end()) (*found)->answer(answer);
}

void JobSocket::forget(const Client* client) {
  std::erase_if(clients_, [client](const auto& one) { return one.get() == client; });
}

int ask_job(int job, const std::string& word, Millis patience) {
  struct stat info = {};
  if (::stat(("/proc/" + std::to_string(job)).c_str(), &info) != 0) {
    return fail(word, "there is no process " + std::to_string(job) + " on this host; expected that of a horovodrun");
  }
  const std::string process = "process " + std::to_string(job);
  const Deadline deadline = Deadline::after(patience);
  const Result<Fd> connected = connect_to(address_of(info.st_uid, job), deadline, -1);
  if (connected.status().code() == StatusCode::kTimeout) return fail(word, process + " does not answer");
  if (!connected.is_ok()) {
    return fail(word, process + " is no horovodrun with a job (" + connected.status().message() + ")");
  }
  const Fd& fd = connected.value();
  const Result<ucred> peer = peer_credentials(fd.get());
  if (!peer.is_ok()) return fail(word, "the socket of job " + std::to_string(job) + ": " + peer.status().message());
  if (peer.value().uid != info.st_uid || peer.value().pid != job) {
    return fail(word, "the socket of job " + std::to_string(job) + " belongs to another process, " +
                          std::to_string(peer.value().pid));
  }
  const std::string line = word + "\n";
  const bool is_asked = ::send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
  if (!is_asked) return fail(word, process + " does not answer");
  const Received answer = read_answer(fd.get(), deadline);
  std::string_view text = answer.text;
  const bool is_complete = text.starts_with('0');
  text.remove_prefix(std::min<std::size_t>(text.size(), 1));
  // The terminal takes commands from our own user alone.
  const std::string shown = peer.value().uid == ::geteuid() ? std::string(text) : without_controls(text, "\n\t");
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  if (!answer.end.is_ok()) return fail(word, process + " " + answer.end.message());
  return is_complete ? 0 : 1;
}

}  // namespace hvd::launcher
