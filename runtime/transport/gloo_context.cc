#include "runtime/transport/gloo_context.h"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>

#include <algorithm>

#include "runtime/transport/gloo_buffer.h"
#include "runtime/transport/wait_error.h"

namespace hvd::transport {
namespace {

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
