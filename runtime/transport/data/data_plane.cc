#include "runtime/transport/data/data_plane.h"

#include "runtime/base/failpoint.h"
#include "runtime/base/log.h"

namespace hvd::transport {
DataPlane::DataPlane(int rank, int size, HostIdentity self, Millis connect_timeout, int sockets)
    : rank_(rank),
      size_(size),
      generation_(fork_generation()),
      self_(self),
      connect_timeout_(connect_timeout),
      sockets_(sockets),
      connector_(std::move(self), cancel_),
      progress_(*this),
      links_(static_cast<std::size_t>(size)) {}

DataPlane::~DataPlane() = default;

void DataPlane::open(std::uint64_t epoch, const crypto::Secret& data_key, bool tls, RowSource& rows) {
  session_.emplace(Session{epoch, data_key, tls, rows});
}

void DataPlane::use_sockets(int number) {
  may_do_without_.store(true, std::memory_order_relaxed);
  sockets_.store(number, std::memory_order_relaxed);
  used_.store(number, std::memory_order_relaxed);
}

Status DataPlane::usable() const {
  if (generation_ != fork_generation()) {
    return Status::aborted(
        "used after fork: connections belong to the process that made them; call init() in the child");
  }
  if (!aborted()) return Status::ok();
  const MutexLock lock(status_mutex_);
  return abort_status_;
}

void DataPlane::abort(const Status& why) {
  {
    const MutexLock lock(status_mutex_);
    if (aborted_) return;
    abort_status_ = why;
    aborted_.store(true, std::memory_order_release);
  }
  cancel_.cancel();
  progress_.notify();
}

void DataPlane::close() {
  const Status why = Status::aborted("the session was shut down");
  abort(why);
  progress_.set_on_driver_left(nullptr);
  progress_.exclusive([&] { for_each_link([&](PeerLink& link) { link.close(why); }); });
}

PeerLink& DataPlane::link(int peer) {
  std::atomic<PeerLink*>& entry = links_[static_cast<std::size_t>(peer)];
  if (PeerLink* known = entry.load(std::memory_order_acquire)) return *known;
  const MutexLock lock(links_mutex_);
  if (PeerLink* known = entry.load(std::memory_order_acquire)) return *known;
  owned_links_.push_back(std::make_unique<PeerLink>(peer, session_->epoch, progress_.epoll_fd(), *this, used_));
  entry.store(owned_links_.back().get(), std::memory_order_release);
  return *owned_links_.back();
}

void DataPlane::for_each_link(const std::function<void(PeerLink&)>& fn) {
  for (const auto& entry : links_) {
    if (PeerLink* known = entry.load(std::memory_order_acquire)) fn(*known);
  }
}

void DataPlane::accept(int from, int number, Stream stream, const std::string& host) {
  HVD_FAILPOINT("data.accept");
  if (from < rank_) {
    HVD_LOG(kWarning, "refused a data connection in the wrong direction", log_field("from_rank", from));
    return;
  }
  if (!link(from).attach(number, std::move(stream), host)) {
    HVD_LOG(kWarning, "refused a second data connection", log_field("from_rank", from), log_field("number", number));
  }
}

std::shared_ptr<MessageContext> DataPlane::make_message_context(std::uint64_t id) {
  return std::make_shared<MessageContext>(id, rank_, [this](int to) -> FrameSender& { return link(to); });
}

Result<std::shared_ptr<MessageContext>> DataPlane::add_context(std::uint64_t id) {
  HVD_RETURN_IF_ERROR(usable());
  if (!session_) return Status::precondition("the fabric is not open yet");
  const MutexLock lock(contexts_mutex_);
  if (!known_ids_.insert(id).second) {
    return Status::precondition("context " + std::to_string(id) + " exists or existed in this epoch");
  }
  auto& entry = contexts_[id];  // there already when a peer was faster
  if (!entry) entry = make_message_context(id);
  return entry;
}

void DataPlane::remove_context(const std::shared_ptr<MessageContext>& context) {
  if (generation_ != fork_generation()) return;
  {
    const MutexLock lock(contexts_mutex_);
    contexts_.erase(context->id());
  }
  progress_.exclusive([&] {
    context->for_each_recv([&](const RecvOp& op) { for_each_link([&](PeerLink& link) { link.forget_target(&op); }); });
  });
}

std::shared_ptr<MessageContext> DataPlane::find_context(std::uint64_t id) {
  const MutexLock lock(contexts_mutex_);
  const auto found = contexts_.find(id);
  return found != contexts_.end() ? found->second : nullptr;
}

ContextProgress DataPlane::progress_of(std::uint64_t context_id) {
  const auto context = find_context(context_id);
  return context ? context->progress() : ContextProgress{};
}

void DataPlane::abort_context(std::uint64_t context_id, const Status& why) {
  const auto context = find_context(context_id);
  if (!context) return;
  context->fail(why);
  progress_.notify();
}

void DataPlane::cancel(MessageContext& context, const Completions& owner) {
  if (generation_ != fork_generation()) return;
  progress_.exclusive(
      [&] { context.cancel(owner, [&](int to, std::uint64_t op_id) { link(to).cancel_send(context.id(), op_id); }); });
  for_each_link([](PeerLink& link) { link.flush(); });
  progress_.notify();
}

}  // namespace hvd::transport
