#include "runtime/transport/gloo_buffer.h"

#include <algorithm>

#include "runtime/transport/wait_error.h"

namespace hvd::transport {

int GlooGroup::to_global(int member) const {
  if (member < 0 || static_cast<std::size_t>(member) >= ranks.size()) {
    throw WaitError(Status::invalid_argument("no member " + std::to_string(member) + " in a context of " +
                                             std::to_string(ranks.size())));
  }
  const int global = ranks[static_cast<std::size_t>(member)];
  if (global == plane->rank()) {
    throw WaitError(
        Status::invalid_argument("rank " + std::to_string(global) + " cannot exchange messages with itself"));
  }
  return global;
}

int GlooGroup::to_member(int global) const {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), global) - ranks.begin());
}

GlooBuffer::GlooBuffer(std::shared_ptr<GlooGroup> group, void* data, size_t bytes)
    : UnboundBuffer(data, bytes), group_(std::move(group)) {}

GlooBuffer::~GlooBuffer() {
  if (completions_.any_pending()) group_->plane->cancel(*group_->messages, completions_);
}

void GlooBuffer::throw_if_unusable() const {
  const Status usable = group_->plane->usable();
  if (!usable.is_ok()) throw WaitError(usable);
}

std::span<std::uint8_t> GlooBuffer::part(size_t offset, size_t nbytes) const {
  if (nbytes == 0) return {};  // wherever it is: Gloo's algorithms pass offsets beyond the end with it
  if (offset > size || (nbytes != kUnspecifiedByteCount && nbytes > size - offset)) {
    throw WaitError(Status::invalid_argument(std::to_string(nbytes) + " bytes from " + std::to_string(offset) +
                                             " are not in a buffer of " + std::to_string(size)));
  }
  return {static_cast<std::uint8_t*>(ptr) + offset, nbytes == kUnspecifiedByteCount ? size - offset : nbytes};
}

void GlooBuffer::send(int to, uint64_t slot, size_t offset, size_t nbytes) {
  throw_if_unusable();
  SendOp op;
  const auto bytes = part(offset, nbytes);
  op.data = bytes.data();
  op.size = bytes.size();
  op.to = group_->to_global(to);
  op.slot = slot;
  op.completions = &completions_;
  Status posted = group_->plane->ensure_connected(op.to);
  if (posted.is_ok()) {
    completions_.begin();
    posted = group_->messages->send(op);
    if (!posted.is_ok()) completions_.cancel_one();
  }
  if (!posted.is_ok()) throw WaitError(posted);
  group_->plane->connection(op.to).flush();
}

void GlooBuffer::recv(int from, uint64_t slot, size_t offset, size_t nbytes) {
  recv(std::vector<int>{from}, slot, offset, nbytes);
}

void GlooBuffer::recv(std::vector<int> from, uint64_t slot, size_t offset, size_t nbytes) {
  throw_if_unusable();
  RecvOp op;
  const auto bytes = part(offset, nbytes);
  op.data = bytes.data();
  op.size = bytes.size();
  for (const int member : from) op.sources.push_back(group_->to_global(member));
  op.slot = slot;
  op.completions = &completions_;
  post_recv(std::move(op));
}

void GlooBuffer::post_recv(RecvOp op) {
  const std::vector<int> sources = op.sources;
  if (sources.empty()) throw WaitError(Status::invalid_argument("a receive from nobody"));
  for (const int source : sources) {
    const Status connected = group_->plane->ensure_connected(source);
    if (!connected.is_ok()) throw WaitError(connected);
  }
  completions_.begin();
  const Status posted = group_->messages->recv(std::move(op));
  if (!posted.is_ok()) {
    completions_.cancel_one();
    throw WaitError(posted);
  }
  for (const int source : sources) group_->plane->connection(source).flush();
}

bool GlooBuffer::waitRecv(int* rank, std::chrono::milliseconds) {
  throw_if_unusable();
  DataPlane& plane = *group_->plane;
  plane.progress().wait([&] { return completions_.recv_ready() || plane.aborted(); });
  throw_if_unusable();
  report(completions_.take_recv(), rank);
  return true;
}

bool GlooBuffer::waitSend(int* rank, std::chrono::milliseconds) {
  throw_if_unusable();
  DataPlane& plane = *group_->plane;
  plane.progress().wait([&] { return completions_.send_ready() || plane.aborted(); });
  throw_if_unusable();
  report(completions_.take_send(), rank);
  return true;
}

void GlooBuffer::report(const Result<int>& taken, int* rank) const {
  if (!taken.is_ok()) throw WaitError(taken.status());
  if (rank != nullptr) *rank = group_->to_member(taken.value());
}

void GlooBuffer::abortWaitRecv() {
  completions_.fail(Status::aborted("the wait was aborted"));
  group_->plane->progress().notify();
}

void GlooBuffer::abortWaitSend() { abortWaitRecv(); }

}  // namespace hvd::transport
