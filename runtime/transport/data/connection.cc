#include "runtime/transport/data/connection.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "runtime/base/failpoint.h"
#include "runtime/transport/net/sockets.h"

namespace hvd::transport {
namespace {

constexpr int kReadsPerTurn = 8;       // then other connections have their turn
constexpr std::size_t kMaxParts = 32;  // of one write

std::size_t eager_cost(std::size_t size) { return size + kFrameHeaderSize; }

}  // namespace

Connection::Connection(int peer, std::uint64_t epoch, int epoll_fd, FrameSink& sink, ConnectionGroup& group)
    : peer_(peer),
      epoll_fd_(epoll_fd),
      sink_(sink),
      group_(group),
      reader_(peer, epoch, sink),
      queue_(epoch, group.messages()) {}

bool Connection::attach(Stream stream, const std::string& host) {
  {
    const MutexLock lock(mutex_);
    if (stream_.valid() || !lost_.is_ok()) return false;
    stream_ = std::move(stream);
    host_ = host;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = this;
    HVD_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, stream_.get(), &event) == 0, "epoll_ctl");
    attached_.store(true, std::memory_order_release);
  }
  group_.flush();
  return true;
}

bool Connection::reserve_eager(std::size_t size) {
  const MutexLock lock(mutex_);
  if (eager_outstanding_ + eager_cost(size) > kEagerBudget) return false;
  eager_outstanding_ += eager_cost(size);
  return true;
}

void Connection::queue_eager(const SendOp& op, std::uint64_t context) {
  const MutexLock lock(mutex_);
  queue_.push_eager({.context = context, .slot = op.slot, .total = op.size}, op.data, op.id);
}

void Connection::queue_begin(const FrameHeader& header, const SentMessage& message) {
  const MutexLock lock(mutex_);
  queue_.push_begin(header, message);
}

void Connection::queue_notice(const FrameHeader& header, std::string_view text) {
  const MutexLock lock(mutex_);
  const std::string_view cut = text.substr(0, kMaxFailText);
  queue_.push_control(header, Bytes(cut.begin(), cut.end()));
}

void Connection::consumed_eager(std::size_t size) {
  const MutexLock lock(mutex_);
  eager_consumed_ += eager_cost(size);
  if (eager_consumed_ < kEagerBudget / 4) return;
  queue_.push_control({.type = FrameType::kConsumed, .total = eager_consumed_});
  eager_consumed_ = 0;
}

Status Connection::lost() const {
  const MutexLock lock(mutex_);
  return lost_;
}

// Once the socket was full, the driver is told when it no longer is.
bool Connection::can_write() const { return stream_.valid() && !write_broken_ && (!wants_writable_ || has_room_); }

void Connection::write(std::size_t ahead) {
  const MutexLock lock(mutex_);
  if (can_write()) write_some(ahead);
}

std::optional<std::size_t> Connection::backlog() const {
  const MutexLock lock(mutex_);
  if (!can_write()) return std::nullopt;
  int unacknowledged = 0;
  if (ioctl(stream_.get(), SIOCOUTQ, &unacknowledged) != 0) return 0;
  return static_cast<std::size_t>(unacknowledged);
}

void Connection::write_piece(std::size_t most) {
  const MutexLock lock(mutex_);
  if (!can_write()) return;
  queue_.cut_piece(most);
  write_some(0);
}

// What one thread has written another may report: a message is struck off only after its report, and a second report of
// it finds nothing. So the end of the stream never comes before the report of what the peer has received.
bool Connection::report_written() {
  std::vector<SentMessage> reported;
  {
    const MutexLock lock(mutex_);
    reported = written_;
  }
  if (reported.empty()) return false;
  for (const SentMessage& message : reported) sink_.on_sent(peer_, message);
  const MutexLock lock(mutex_);
  std::erase_if(written_, [&](const SentMessage& m) { return std::ranges::find(reported, m) != reported.end(); });
  return true;
}

void Connection::write_some(std::size_t ahead) {
  iovec parts[kMaxParts];
  for (;;) {
    if (!all_written()) return;
    queue_.cut_ahead(ahead);
    const std::size_t count = queue_.gather(parts);
    if (count == 0) return arm_writable(false);
    std::size_t used = count;
    const ssize_t n = HVD_FAILPOINT_IO("data.send", used, stream_.send({parts, used}));
    if (n >= 0) {
      written_bytes_.fetch_add(static_cast<std::uint64_t>(n), std::memory_order_relaxed);
      queue_.advance(static_cast<std::size_t>(n), taken_);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return arm_writable(true);
    } else if (errno != EINTR) {
      return stop_writing();
    }
  }
}

// What the peer still said is read first; then the reading side finds the end and reports it. Where the stream itself
// lives (the system was out of memory, say), its end is what makes the peer close.
void Connection::stop_writing() {
  write_broken_ = true;
  queue_.clear();
  shutdown(stream_.get(), SHUT_WR);
  arm_writable(false);
}

// Only what the kernel has survives the end of this process, so a message counts as written no sooner.
bool Connection::all_written() {
  switch (stream_.flush()) {
    case tls::Flush::kDone: break;
    case tls::Flush::kWaiting: arm_writable(true); return false;
    case tls::Flush::kFailed: stop_writing(); return false;
  }
  for (const WrittenFrame& frame : taken_) {
    const bool is_whole = !frame.is_part || group_.messages().written(frame.message, frame.bytes);
    if (is_whole) written_.push_back(frame.message);
  }
  taken_.clear();
  return true;
}

void Connection::arm_writable(bool on) {
  has_room_ = false;
  if (on == wants_writable_) return;
  wants_writable_ = on;
  epoll_event event{};
  event.events = on ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = this;
  HVD_CHECK(epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, stream_.get(), &event) == 0, "epoll_ctl");
}

bool Connection::cancel_send(std::uint64_t context, std::uint64_t op_id) {
  const MutexLock lock(mutex_);
  return queue_.cancel(context, op_id);
}

void Connection::shut_down() {
  const MutexLock lock(mutex_);
  write_broken_ = true;
  queue_.clear();
  if (stream_.valid()) shutdown(stream_.get(), SHUT_RDWR);
}

bool Connection::on_io(bool readable, bool writable) {
  if (writable) {
    {
      const MutexLock lock(mutex_);
      has_room_ = true;
    }
    group_.flush();
  }
  return readable && read_some();
}

bool Connection::read_some() {
  if (!stream_.valid()) return false;
  FrameReader::Outcome outcome = FrameReader::Outcome::kMore;
  const auto has_more = [&] {
    return outcome == FrameReader::Outcome::kMore ||
           (outcome == FrameReader::Outcome::kDrained && stream_.has_buffered());
  };
  for (int i = 0; i < kReadsPerTurn && has_more(); ++i) outcome = reader_.read_from(stream_);
  if (const std::size_t returned = reader_.take_returned_budget(); returned > 0) {
    const MutexLock lock(mutex_);
    eager_outstanding_ -= std::min(returned, eager_outstanding_);
  }
  if (outcome == FrameReader::Outcome::kClosed) {
    end(Status::peer_lost("its process ended or closed the connection"), true);
    return false;
  }
  if (outcome == FrameReader::Outcome::kFailed) {
    end(reader_.error(), false);
    return false;
  }
  group_.flush();  // credits let messages go, and receives give budget back
  return stream_.has_buffered();
}

void Connection::check_liveness() {
  if (!attached() || !stream_.valid()) return;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(stream_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  // A stopped process is not dead: its kernel acknowledges data and answers probes of its full window. So what counts
  // is that something unanswered was sent and that no acknowledgement has come since. Streams on which nothing is
  // outstanding are the business of the kernel's keepalive.
  const bool owes_answer = (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes > 0;
  const TimePoint now = SteadyClock::now();
  const TimePoint last_ack = now - Millis(info.tcpi_last_ack_recv);
  if (!owes_answer) return owes_since_.reset();
  if (!owes_since_ || last_ack > *owes_since_) owes_since_ = now;
  if (now - *owes_since_ < kPeerSilence) return;
  end(Status::peer_lost("no sign of life from its host for " + std::to_string(info.tcpi_last_ack_recv) + " ms"), false);
}

void Connection::close(const Status& why) {
  const MutexLock lock(mutex_);
  if (lost_.is_ok()) lost_ = why;
  queue_.clear();
  write_broken_ = true;
  if (!stream_.valid()) return;
  // Unread bytes would turn the close into a reset, which may overtake our last words.
  shutdown(stream_.get(), SHUT_WR);
  char sink[4096];
  for (int i = 0; i < 64 && recv(stream_.get(), sink, sizeof(sink), MSG_DONTWAIT) > 0; ++i) {
  }
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, stream_.get(), nullptr);
  stream_.reset();
}

void Connection::end(const Status& why, bool at_its_end) {
  const Status named = describe(why);
  close(named);
  report_written();  // the peer may have ended because it has received this
  group_.on_end(named, at_its_end);
}

Status Connection::describe(const Status& why) const {
  const MutexLock lock(mutex_);
  return Status::peer_lost("lost rank " + std::to_string(peer_) + " on host " + host_ + ": " + why.message());
}

}  // namespace hvd::transport
