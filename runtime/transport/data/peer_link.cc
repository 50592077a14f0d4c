#include "runtime/transport/data/peer_link.h"

#include <algorithm>

namespace hvd::transport {
namespace {

// After the end of one connection, for what is on its way on the others.
constexpr Millis kPatience{1000};
// Of a message that is no more than one piece: two connections carry it, and the next does not come beside it but after
// it. Smaller parts made a reducescatter of several ranks on a host slower (docs/benchmarks.md).
constexpr std::size_t kHalf = kMaxChunk / 2;

}  // namespace

PeerLink::PeerLink(int peer, std::uint64_t epoch, int epoll_fd, FrameSink& sink, const std::atomic<int>& used)
    : peer_(peer), epoch_(epoch), epoll_fd_(epoll_fd), sink_(sink), used_(used) {
  connection(0);
}

Connection& PeerLink::connection(int number) {
  auto& entry = by_number_[static_cast<std::size_t>(number)];
  if (Connection* const known = entry.load(std::memory_order_acquire)) return *known;
  const MutexLock lock(mutex_);
  if (Connection* const known = entry.load(std::memory_order_acquire)) return *known;
  owned_.push_back(std::make_unique<Connection>(peer_, epoch_, epoll_fd_, sink_, *this));
  entry.store(owned_.back().get(), std::memory_order_release);
  return *owned_.back();
}

template <typename Fn>
void PeerLink::for_each(const Fn& fn) const {
  for (const auto& entry : by_number_) {
    if (Connection* const known = entry.load(std::memory_order_acquire)) fn(*known);
  }
}

bool PeerLink::attach(int number, Stream stream, const std::string& host) {
  if (!lost().is_ok() || !connection(number).attach(std::move(stream), host)) return false;
  count_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void PeerLink::queue_message(const SendOp& op, std::uint64_t context) {
  const FrameHeader header{.type = FrameType::kData, .context = context, .slot = op.receive, .total = op.size};
  const SentMessage message{context, op.slot, op.id};
  messages_.push(header, op.data, message);
  first().queue_begin(header, message);
}

std::uint64_t PeerLink::bytes_written() const {
  std::uint64_t sum = 0;
  for_each([&](const Connection& c) { sum += c.bytes_written(); });
  return sum;
}

std::uint64_t PeerLink::bytes_read() const {
  std::uint64_t sum = 0;
  for_each([&](const Connection& c) { sum += c.bytes_read(); });
  return sum;
}

void PeerLink::flush() {
  const int used = std::min(count(), used_.load(std::memory_order_relaxed));
  bool more = true;
  while (more) {
    const Connection* const alone = used > 1 ? nullptr : &first();
    for_each([&](Connection& c) { c.write(&c == alone ? TxQueue::kAhead : 0); });
    if (used > 1) spread_pieces(used);
    more = false;
    for_each([&](Connection& c) { more = c.report_written() || more; });  // then the next ones may be queued
  }
}

// A piece goes to the connection that has least to do: one whose way is slow or shared does not delay the others.
void PeerLink::spread_pieces(int used) {
  while (messages_.has_uncut()) {
    Connection* next = nullptr;
    std::size_t least = 0;
    for (int number = 0; number < used; ++number) {
      const auto backlog = connection(number).backlog();
      if (!backlog || (next != nullptr && *backlog >= least)) continue;
      next = &connection(number);
      least = *backlog;
    }
    if (next == nullptr) return;  // the driver is told when one takes more
    next->write_piece(kHalf);
  }
}

void PeerLink::on_end(const Status& why, bool at_its_end) {
  bool others = false;
  for_each([&](const Connection& c) { others = others || c.is_open(); });
  if (at_its_end && others) {
    if (!end_) end_since_ = SteadyClock::now();
    if (!end_) end_ = why;
    return;
  }
  const Status first = end_.value_or(why);
  end_.reset();
  close(first);
  for_each([](Connection& c) { c.report_written(); });
  sink_.on_lost(peer_, first);
}

void PeerLink::cancel_send(std::uint64_t context, std::uint64_t op_id) {
  messages_.cancel(context, op_id);
  bool is_between = true;
  for_each([&](Connection& c) { is_between = c.cancel_send(context, op_id) && is_between; });
  if (!is_between) for_each([](Connection& c) { c.shut_down(); });
}

void PeerLink::check_liveness() {
  for_each([](Connection& c) { c.check_liveness(); });
  if (end_ && SteadyClock::now() - end_since_ > kPatience) on_end(*end_, false);
}

void PeerLink::forget_target(const RecvOp* op) {
  for_each([op](Connection& c) { c.forget_target(op); });
}

void PeerLink::close(const Status& why) {
  messages_.clear();
  for_each([&](Connection& c) { c.close(why); });
}

}  // namespace hvd::transport
