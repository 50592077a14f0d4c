#include "runtime/transport/data/gloo_context.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <span>

#include "runtime/transport/data/data_plane.h"

namespace hvd::transport {
namespace {

// The members of one Gloo context: its ranks are positions in `ranks`, ours are the global ranks there.
struct GlooGroup {
  std::shared_ptr<DataPlane> plane;
  std::shared_ptr<MessageContext> messages;
  std::vector<int> ranks;

  ~GlooGroup() { plane->remove_context(messages); }
  // Throws WaitError when there is no such member.
  int to_global(int member) const;
  int to_member(int global) const;
};

// A piece of memory that messages leave from and arrive in: Gloo's handle on our transport. Used by one lane at a time.
// Waits end by completion, by abort, or when the peer is lost; Gloo's time limits are ignored, because how long a
// collective may take is the user's business (docs/design/transport.md). Failures throw WaitError; nothing returns
// false.
class GlooBuffer final : public gloo::transport::UnboundBuffer {
 public:
  GlooBuffer(std::shared_ptr<GlooGroup> group, void* data, size_t bytes);
  // Takes back what is still pending, so that the memory may go.
  ~GlooBuffer() override;

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override;
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override;
  void abortWaitRecv() override;
  void abortWaitSend() override;

  void send(int to, uint64_t slot, size_t offset, size_t nbytes) override;
  void recv(int from, uint64_t slot, size_t offset, size_t nbytes) override;
  void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t nbytes) override;

 private:
  std::span<std::uint8_t> part(size_t offset, size_t nbytes) const;
  void throw_if_unusable() const;
  void post_recv(RecvOp op);
  void report(const Result<int>& taken, int* rank) const;

  std::shared_ptr<GlooGroup> group_;
  Completions completions_;
};

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
  Status posted = group_->plane->ensure_connected(op.to, op.size);
  if (posted.is_ok()) {
    completions_.begin();
    posted = group_->messages->send(op);
    if (!posted.is_ok()) completions_.cancel_one();
  }
  if (!posted.is_ok()) throw WaitError(posted);
  group_->plane->link(op.to).flush();
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
    const Status connected = group_->plane->ensure_connected(source, op.size);
    if (!connected.is_ok()) throw WaitError(connected);
  }
  completions_.begin();
  const Status posted = group_->messages->recv(std::move(op));
  if (!posted.is_ok()) {
    completions_.cancel_one();
    throw WaitError(posted);
  }
  for (const int source : sources) group_->plane->link(source).flush();
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

[[noreturn]] void refuse(const char* what) {
  throw WaitError(Status::precondition(std::string("this transport has no ") + what +
                                       ": only Gloo's algorithms with unbound buffers run on it"));
}

class GlooAddress final : public gloo::transport::Address {
 public:
  std::string str() const override { return "hvd"; }
  std::vector<char> bytes() const override { return {}; }
};

// Stands where Gloo wants a pair; all traffic goes through unbound buffers, and connections are not the pair's
// business.
class GlooPair final : public gloo::transport::Pair {
 public:
  const gloo::transport::Address& address() const override { return address_; }
  void connect(const std::vector<char>&) override { refuse("explicit connections"); }
  void close() override {}
  void setSync(bool, bool) override { refuse("synchronous mode"); }
  std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int, void*, size_t) override { refuse("bound buffers"); }
  std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int, void*, size_t) override { refuse("bound buffers"); }
  void send(gloo::transport::UnboundBuffer*, uint64_t, size_t, size_t) override { refuse("sends on pairs"); }
  void recv(gloo::transport::UnboundBuffer*, uint64_t, size_t, size_t) override { refuse("receives on pairs"); }

 private:
  GlooAddress address_;
};

class GlooTransportContext final : public gloo::transport::Context {
 public:
  GlooTransportContext(std::shared_ptr<GlooGroup> group, int member)
      : Context(member, static_cast<int>(group->ranks.size())), group_(std::move(group)) {
    pairs_.resize(group_->ranks.size());
  }

  std::unique_ptr<gloo::transport::Pair>& getPair(int member) override { return createPair(member); }
  std::unique_ptr<gloo::transport::Pair>& createPair(int member) override {
    auto& pair = pairs_.at(static_cast<std::size_t>(member));
    if (!pair && member != rank) pair = std::make_unique<GlooPair>();
    return pair;
  }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data, size_t bytes) override {
    return std::make_unique<GlooBuffer>(group_, data, bytes);
  }

 private:
  std::shared_ptr<GlooGroup> group_;
};

class GlooDevice final : public gloo::transport::Device {
 public:
  std::string str() const override { return "hvd"; }
  const std::string& getPCIBusID() const override { return bus_; }
  std::shared_ptr<gloo::transport::Context> createContext(int, int) override { refuse("contexts made by a device"); }

 private:
  std::string bus_;
};

class GlooContext final : public gloo::Context {
 public:
  GlooContext(std::shared_ptr<GlooGroup> group, int member) : Context(member, static_cast<int>(group->ranks.size())) {
    transportContext_ = std::make_shared<GlooTransportContext>(std::move(group), member);
    device_ = std::make_shared<GlooDevice>();
  }
};

}  // namespace

Result<std::shared_ptr<gloo::Context>> make_gloo_context(std::shared_ptr<DataPlane> plane, std::uint64_t id,
                                                         std::vector<int> ranks) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const auto self = std::find(ranks.begin(), ranks.end(), plane->rank());
  if (!distinct || self == ranks.end() || sorted.front() < 0 || sorted.back() >= plane->size()) {
    return Status::invalid_argument("the members of a context must be different ranks below " +
                                    std::to_string(plane->size()) + ", this rank among them");
  }
  HVD_ASSIGN_OR_RETURN(auto messages, plane->add_context(id));
  const int member = static_cast<int>(self - ranks.begin());
  std::shared_ptr<GlooGroup> group(new GlooGroup{std::move(plane), std::move(messages), std::move(ranks)});
  return std::shared_ptr<gloo::Context>(std::make_shared<GlooContext>(std::move(group), member));
}

}  // namespace hvd::transport
