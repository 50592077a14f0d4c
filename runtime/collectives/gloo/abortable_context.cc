#include "runtime/collectives/gloo/abortable_context.h"

#include <atomic>
#include <functional>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/transport/device.h>

#include "runtime/base/mutex.h"

namespace hvd::collectives {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Which buffers exist, so that abort() reaches all waits. Thread-safe. Shared by the context and its buffers.
class AbortGate {
 public:
  // `close` ends all traffic of the context.
  explicit AbortGate(std::function<void()> close) : close_(std::move(close)) {}

  void add(gloo::transport::UnboundBuffer* buffer) HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) throw gloo::IoException(why_);
    live_.insert(buffer);
  }
  void remove(gloo::transport::UnboundBuffer* buffer) HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    live_.erase(buffer);
  }
  void abort(const std::string& why) HVD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    why_ = why;
    aborted_.store(true, std::memory_order_release);
    // A wait that begins from now on sees aborted_; one that began earlier is woken here.
    for (gloo::transport::UnboundBuffer* buffer : live_) {
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    }
  }
  // Runs one operation of a buffer on the lane. When it fails, what is still under way must end before the buffers are
  // unwound: whoever reads the sockets would go on using them.
  template <typename Operation>
  void guard(Operation operation) {
    try {
      check(true);
      check(operation());
    } catch (...) {
      if (!std::exchange(closed_, true)) close_();
      check(true);  // the reason of the abort is better than what it led to
      throw;
    }
  }

 private:
  void check(bool completed) const {
    if (aborted_.load(std::memory_order_acquire)) throw gloo::IoException(why_);  // why_ no longer changes
    if (!completed) throw gloo::IoException("a wait was aborted without a reason");
  }

  const std::function<void()> close_;
  bool closed_ = false;  // lane only
  std::atomic<bool> aborted_{false};
  std::string why_;  // written once, before aborted_
  Mutex mutex_;
  std::unordered_set<gloo::transport::UnboundBuffer*> live_ HVD_GUARDED_BY(mutex_);
};

class AbortableBuffer final : public gloo::transport::UnboundBuffer {
 public:
  AbortableBuffer(std::shared_ptr<AbortGate> gate, std::unique_ptr<gloo::transport::UnboundBuffer> inner)
      : UnboundBuffer(inner->ptr, inner->size), gate_(std::move(gate)), inner_(std::move(inner)) {
    gate_->add(inner_.get());
  }
  ~AbortableBuffer() override { gate_->remove(inner_.get()); }

  bool waitRecv(int* rank, Milliseconds timeout) override {
    gate_->guard([&] { return inner_->waitRecv(rank, timeout); });
    return true;
  }
  bool waitSend(int* rank, Milliseconds timeout) override {
    gate_->guard([&] { return inner_->waitSend(rank, timeout); });
    return true;
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }
  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t nbytes) override {
    gate_->guard([&] {
      inner_->send(to, slot, offset, nbytes);
      return true;
    });
  }
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t nbytes) override {
    gate_->guard([&] {
      inner_->recv(from, slot, offset, nbytes);
      return true;
    });
  }
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t nbytes) override {
    gate_->guard([&] {
      inner_->recv(std::move(from), slot, offset, nbytes);
      return true;
    });
  }

 private:
  std::shared_ptr<AbortGate> gate_;
  std::unique_ptr<gloo::transport::UnboundBuffer> inner_;
};

}  // namespace

class AbortableContext::Transport final : public gloo::transport::Context {
 public:
  explicit Transport(gloo::Context& inner)
      : gloo::transport::Context(inner.rank, inner.size), inner_(inner),
        gate_(std::make_shared<AbortGate>([this] { inner_.closeConnections(); })) {}

  void abort(const std::string& why) { gate_->abort(why); }

  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override { return inner_.getPair(peer); }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return inner_.getPair(peer); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* memory, std::size_t bytes) override {
    return std::make_unique<AbortableBuffer>(gate_, inner_.createUnboundBuffer(memory, bytes));
  }

 private:
  gloo::Context& inner_;  // kept alive by the AbortableContext
  std::shared_ptr<AbortGate> gate_;
};

AbortableContext::AbortableContext(std::shared_ptr<gloo::Context> inner)
    : gloo::Context(inner->rank, inner->size), inner_(std::move(inner)), transport_(std::make_shared<Transport>(*inner_)) {
  device_ = inner_->getDevice();
  transportContext_ = transport_;
  timeout_ = inner_->getTimeout();
}

AbortableContext::~AbortableContext() = default;

void AbortableContext::abort(const std::string& why) { transport_->abort(why); }

}  // namespace hvd::collectives
