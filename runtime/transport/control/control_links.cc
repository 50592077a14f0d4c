#include "runtime/transport/control/control_links.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "runtime/base/check.h"
#include "runtime/base/failpoint.h"

namespace hvd::transport {

namespace {

constexpr std::size_t kReadSize = 64U << 10U;
constexpr std::size_t kControlReadsPerTurn = 16;  // then other connections have their turn

}  // namespace

ControlLink::ControlLink(uv_loop_t* loop, Stream stream, Events events)
    : loop_(loop), stream_(std::move(stream)), events_(std::move(events)), reader_(ControlLinks::kMaxControlMessage) {}

void ControlLink::start() {
  poll_.emplace(loop_, stream_.get(), [this](bool readable, bool writable) { on_io(readable, writable); });
  update_watch();
}

void ControlLink::on_io(bool readable, bool writable) {
  if (writable) flush();
  const bool has_its_turn = go_on_ && go_on_->active();
  if (readable && !ended_ && !has_its_turn) read_some();
}

void ControlLink::send(Bytes message) {
  if (closing_ || ended_ || peer_ == PeerState::kSaidGoodbye) return;
  enqueue(ControlFrameType::kMessage, std::move(message));
}

void ControlLink::begin_close() {
  if (closing_) return;
  HVD_FAILPOINT("control.goodbye");
  enqueue(ControlFrameType::kGoodbye, {});
  closing_ = true;
  flush();
  if (ended_) events_.drained();
}

void ControlLink::enqueue(ControlFrameType type, Bytes payload) {
  if (write_broken_ || ended_) return;
  queue_.push_back(encode_control_frame(type, payload));
  queued_bytes_ += queue_.back().size();
  if (queued_bytes_ > kMaxQueued) {
    // Reported from the loop like every loss, not from inside the caller's send.
    overflow_ = Status::peer_lost("it does not read: " + std::to_string(queued_bytes_) + " bytes are waiting");
    return stop_writing(SHUT_RDWR);
  }
  flush();
}

void ControlLink::flush() {
  while (!queue_.empty() && !write_broken_) {
    const Bytes& front = queue_.front();
    std::size_t rest = front.size() - sent_of_front_;
    auto* const data = const_cast<std::uint8_t*>(front.data()) + sent_of_front_;
    const ssize_t n = HVD_FAILPOINT_IO("control.send", rest, stream_.send(std::array{iovec{data, rest}}));
    if (n >= 0) {
      sent_of_front_ += static_cast<std::size_t>(n);
      if (sent_of_front_ < front.size()) continue;
      queued_bytes_ -= front.size();
      queue_.pop_front();
      sent_of_front_ = 0;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      stop_writing(SHUT_WR);
    }
  }
  const tls::Flush flushed = stream_.flush();
  held_back_ = flushed == tls::Flush::kWaiting;
  if (flushed == tls::Flush::kFailed && !write_broken_) stop_writing(SHUT_WR);
  // The last word was said (or the peer's was): tell the peer that nothing follows.
  const bool last_word_sent = queue_.empty() && !held_back_ && (closing_ || peer_ == PeerState::kSaidGoodbye);
  if (last_word_sent && !write_shut_) {
    write_shut_ = true;
    shutdown(stream_.get(), SHUT_WR);
  }
  update_watch();
}

// What the peer still said is read first; then the reading side reports the loss. Where the stream itself lives (the
// system was out of memory, say), its end is what makes the peer close.
void ControlLink::stop_writing(int how) {
  write_broken_ = true;
  queue_.clear();
  shutdown(stream_.get(), how);
}

void ControlLink::read_some() {
  std::uint8_t buffer[kReadSize];
  for (std::size_t i = 0; !ended_ && i < kControlReadsPerTurn; ++i) {
    std::size_t room = sizeof(buffer);
    const ssize_t n = HVD_FAILPOINT_IO("control.receive", room, stream_.receive(std::array{iovec{buffer, room}}));
    if (n == 0) return on_read_end(Status::peer_lost("its process ended or closed the connection"));
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      return on_read_end(lost_stream(errno));
    }
    if (closing_) continue;  // read only to see the end
    const Status fed = reader_.feed({buffer, static_cast<std::size_t>(n)}, [this](const ControlFrame& frame) {
      handle(frame);
      return !ended_ && !closing_;
    });
    if (!fed.is_ok()) return on_read_end(fed);
    if (static_cast<std::size_t>(n) < room && !stream_.has_buffered()) return;  // most likely nothing more is there
  }
  if (ended_ || !stream_.has_buffered()) return;
  if (!go_on_) {
    go_on_.emplace(loop_, [this] {
      if (!ended_) read_some();
    });
  }
  go_on_->start(Millis(1));  // libuv runs one of 0 ms again in the same turn
}

void ControlLink::handle(const ControlFrame& frame) {
  if (frame.type == ControlFrameType::kMessage) {
    if (peer_ == PeerState::kTalking) events_.message(frame.payload);
    return;
  }
  peer_ = PeerState::kSaidGoodbye;
  queue_.clear();  // nobody would read it
  queued_bytes_ = 0;
  sent_of_front_ = 0;
  flush();
}

void ControlLink::on_read_end(const Status& why) {
  if (ended_) return;
  const bool expected = closing_ || peer_ == PeerState::kSaidGoodbye;
  end();
  if (closing_) {
    events_.drained();
  } else if (!expected) {
    events_.lost(overflow_.is_ok() ? why : overflow_);
  }
}

void ControlLink::end() {
  ended_ = true;
  queue_.clear();
  poll_.reset();
  go_on_.reset();
  stream_.reset();
}

void ControlLink::update_watch() {
  if (poll_ && !ended_) poll_->watch(true, !write_broken_ && (!queue_.empty() || held_back_));
}

void ControlLinkSet::add(int rank, Stream stream, std::string host) {
  ControlLink::Events events;
  events.message = [this, rank](ByteSpan message) { handler_.on_control_message(rank, message); };
  events.lost = [this, rank, name = std::move(host)](const Status& why) {
    handler_.on_control_lost(rank, why.annotate("host " + name));
  };
  events.drained = [this] { finish_close(); };
  links_.emplace(rank, std::make_unique<ControlLink>(loop_, std::move(stream), std::move(events)));
}

void ControlLinkSet::start() {
  check_thread();
  if (released_) return;
  for (auto& [rank, link] : links_) link->start();
}

void ControlLinkSet::send(int to_rank, Bytes message) {
  check_thread();
  HVD_CHECK(message.size() <= ControlLinks::kMaxControlMessage, "a control message is too large");
  const auto link = links_.find(to_rank);
  HVD_CHECK(link != links_.end(), "no control connection to that rank");
  link->second->send(std::move(message));
}

void ControlLinkSet::close(std::function<void()> closed) {
  check_thread();
  if (closed_) return;
  closed_ = std::move(closed);
  close_limit_ = std::make_unique<loop::Timer>(loop_, [this] {
    links_.clear();
    finish_close();
  });
  close_limit_->start(kCloseLimit);
  for (auto& [rank, link] : links_) link->begin_close();
  finish_close();
}

void ControlLinkSet::finish_close() {
  for (const auto& [rank, link] : links_) {
    if (!link->ended()) return;
  }
  if (!close_limit_) return;  // reported already
  // From the timer, so that no link and no caller is on the stack when the owner destroys everything.
  close_limit_ = std::make_unique<loop::Timer>(loop_, [this] {
    links_.clear();
    close_limit_.reset();
    const auto report = closed_;
    report();
  });
  close_limit_->start(Millis(0));
}

void ControlLinkSet::release() {
  released_ = true;
  links_.clear();
  close_limit_.reset();
}

}  // namespace hvd::transport
