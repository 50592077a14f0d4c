#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <set>
#include <sstream>

#include "runtime/collectives/cuda/devices.h"
#include "runtime/collectives/cuda/stream.h"
#include "runtime/collectives/nccl/library.h"
#include "test/support/fake_gpu/fake_driver.h"
#include "test/support/fake_gpu/fake_nccl.h"

// The fake NCCL itself: what NCCL leaves undefined has to be written down, or it would be kinder than NCCL.
namespace hvd::collectives::nccl {

namespace {

constexpr std::size_t kBytes = 256;
constexpr auto kFloat = Type::kFloat32;

struct Member {
  const Calls& nccl;
  int rank;
  std::shared_ptr<cuda::Stream> stream;
  std::shared_ptr<void> memory;  // what goes in, then what comes out
  void* comm = nullptr;
  void* own = nullptr;  // memory of NCCL's, as large
  void* registration = nullptr;

  std::byte* in() const { return static_cast<std::byte*>(memory.get()); }
  std::byte* out() const { return in() + kBytes; }
  std::byte* registered() const { return static_cast<std::byte*>(own); }
  bool is(int which) const { return rank == which; }
  void all_reduce(std::size_t n, Type type = kFloat, int reduction = 0) const {
    nccl.all_reduce(in(), out(), n, type, reduction, comm, stream->handle());
  }
  void reduce(Reduction reduction, int root) const {
    nccl.reduce(in(), out(), 4, kFloat, static_cast<int>(reduction), root, comm, stream->handle());
  }
  void broadcast(int root) const { nccl.broadcast(in(), out(), 4, kFloat, root, comm, stream->handle()); }
  void send(std::size_t n, Type type = kFloat) const { nccl.send(in(), n, type, 1, comm, stream->handle()); }
  void receive(std::size_t n, Type type = kFloat) const { nccl.receive(out(), n, type, 0, comm, stream->handle()); }
  int scaled_sum(float factor) const {
    int made = 0;
    nccl.make_pre_mul_sum(&made, &factor, kFloat, kScalarOnHost, comm);
    return made;
  }
  void settle() const {
    int state = kInProgress;
    while (state == kInProgress) REQUIRE(nccl.async_error(comm, &state) == kSuccess);
    REQUIRE(state == kSuccess);
  }
};
using Make = std::function<void(const Member&)>;

std::string taken_breaches() {
  std::string text = fake_nccl_breaches();
  fake_nccl_forget_breaches();
  return text;
}

// Members of a communicator, each on a GPU of its own.
class Members {
 public:
  explicit Members(int size) {
    const Calls& nccl = library_->calls();
    UniqueId id{};
    nccl.unique_id(&id);
    for (int rank = 0; rank < size; ++rank) {
      const auto device = devices_.get(rank).value();
      const cuda::Device::Scope scope(*device);
      Member& one = all_.emplace_back(
          Member{nccl, rank, cuda::Stream::make(device).value(), device->allocate(2 * kBytes).value()});
      std::memset(one.in(), 0, 2 * kBytes);
      Config config;
      one.nccl.init(&one.comm, size, id, rank, &config);
      one.nccl.allocate(&one.own, kBytes);
    }
    for (Member& one : all_) {
      one.settle();
      one.nccl.register_memory(one.comm, one.own, kBytes, &one.registration);
    }
  }
  ~Members() {
    for (const Member& one : all_) {
      one.nccl.abort(one.comm);
      one.nccl.free(one.own);
    }
  }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  // Each makes its calls, as a group; what was wrong with that, on which all members agree.
  std::string said_of(const Make& make) {
    for (const Member& one : all_) {
      one.nccl.group_start();
      make(one);
      one.nccl.group_end();
      one.settle();
    }
    for (const Member& one : all_) fake_cuda_synchronize(one.stream->handle());
    std::istringstream lines(taken_breaches());
    std::multiset<std::string> said;
    for (std::string line; std::getline(lines, line);) said.insert(line);
    if (said.empty()) return "";
    CHECK(said.count(*said.begin()) == all_.size());
    return *said.begin();
  }
  const Member& of(int rank) const { return all_[static_cast<std::size_t>(rank)]; }

 private:
  const std::shared_ptr<const Library> library_ = Library::load(HVD_FAKE_NCCL).value();
  cuda::Devices devices_{HVD_FAKE_CUDA};
  std::vector<Member> all_;
};

std::string said_of(int size, const Make& make) { return Members(size).said_of(make); }

}  // namespace

TEST_CASE("The fake NCCL names the member whose collective has another op, type, count, root or kind", "[unit][gpu]") {
  const std::string differ = "members make different calls: ";
  CHECK(said_of(2, [](const Member& m) { m.all_reduce(4, kFloat, m.is(1) ? 2 : 0); }) ==
        differ +
            "member 1 makes all_reduce of 4 elements of type 7, max; "
            "member 0 makes all_reduce of 4 elements of type 7, sum");
  CHECK(said_of(2, [](const Member& m) { m.all_reduce(4, m.is(1) ? Type::kInt32 : kFloat); }) ==
        differ +
            "member 1 makes all_reduce of 4 elements of type 2, sum; "
            "member 0 makes all_reduce of 4 elements of type 7, sum");
  CHECK(said_of(3, [](const Member& m) { m.all_reduce(m.is(0) ? 5 : 4); }) ==
        differ +
            "member 0 makes all_reduce of 5 elements of type 7, sum; "
            "members 1 and 2 make all_reduce of 4 elements of type 7, sum");
  CHECK(said_of(2, [](const Member& m) { m.reduce(Reduction::kMin, m.rank); }) ==
        differ +
            "member 1 makes reduce of 4 elements of type 7, min, root 1; "
            "member 0 makes reduce of 4 elements of type 7, min, root 0");
  CHECK(said_of(3, [](const Member& m) { m.broadcast(m.is(2) ? 0 : 1); }) ==
        differ +
            "member 2 makes broadcast of 4 elements of type 7, root 0; "
            "members 0 and 1 make broadcast of 4 elements of type 7, root 1");
  CHECK(said_of(2, [](const Member& m) { m.is(1) ? m.broadcast(0) : m.all_reduce(4); }) ==
        differ +
            "member 1 makes broadcast of 4 elements of type 7, root 0; "
            "member 0 makes all_reduce of 4 elements of type 7, sum");
  CHECK(said_of(2, [](const Member& m) { m.reduce(Reduction::kMin, 1); }) == "");
  CHECK(said_of(2, [](const Member& m) { m.broadcast(1); }) == "");
}

TEST_CASE("The fake NCCL compares the order and number of calls in a group, and scaled sums by their factor",
          "[unit][gpu]") {
  const auto two = [](const Member& m, std::size_t first, std::size_t second) {
    m.all_reduce(first);
    if (second > 0) m.all_reduce(second);
  };
  CHECK(said_of(2, [&](const Member& m) { two(m, m.is(1) ? 3 : 4, m.is(1) ? 4 : 3); }) ==
        "members make different calls: member 1 makes all_reduce of 3 elements of type 7, sum; "
        "member 0 makes all_reduce of 4 elements of type 7, sum");
  CHECK(said_of(2, [&](const Member& m) { two(m, 4, m.is(1) ? 3 : 0); }) ==
        "members make different calls: member 1 makes all_reduce of 3 elements of type 7, sum; "
        "member 0 makes no further call");
  CHECK(said_of(2, [](const Member& m) { m.all_reduce(4, kFloat, m.scaled_sum(m.is(1) ? 2.0F : 0.5F)); }) ==
        "members make different calls: "
        "member 1 makes all_reduce of 4 elements of type 7, sum with the factor 0x0000000040000000; "
        "member 0 makes all_reduce of 4 elements of type 7, sum with the factor 0x000000003f000000");
  CHECK(said_of(2, [](const Member& m) { m.all_reduce(4, kFloat, m.is(1) ? 4 : m.scaled_sum(0.5F)); }) ==
        "members make different calls: member 1 makes all_reduce of 4 elements of type 7, average; "
        "member 0 makes all_reduce of 4 elements of type 7, sum with the factor 0x000000003f000000");
  CHECK(said_of(2, [](const Member& m) {
          if (m.is(1)) m.scaled_sum(3.0F);  // so that the next one has another number than on member 0
          m.all_reduce(4, kFloat, m.scaled_sum(0.5F));
        }) == "");
}

TEST_CASE("The fake NCCL names the member that sends what its peer does not receive", "[unit][gpu]") {
  const auto said_of_two = [](const std::function<void(const Member&)>& send, const Make& receive) {
    return said_of(2, [&](const Member& m) { m.is(0) ? send(m) : receive(m); });
  };
  CHECK(said_of_two([](const Member& m) { m.send(4); }, [](const Member& m) { m.receive(3); }) ==
        "member 0 sends 4 elements of type 7 to member 1, which receives 3 elements of type 7");
  CHECK(said_of_two([](const Member& m) { m.send(4); }, [](const Member& m) { m.receive(4, Type::kInt32); }) ==
        "member 0 sends 4 elements of type 7 to member 1, which receives 4 elements of type 2");
  CHECK(said_of_two([](const Member& m) { m.send(4), m.send(3); }, [](const Member& m) { m.receive(4); }) ==
        "member 0 sends 3 elements of type 7 to member 1, which receives nothing");
  CHECK(said_of_two([](const Member& m) { m.send(4); }, [](const Member& m) { m.receive(4), m.receive(2); }) ==
        "member 0 sends nothing to member 1, which receives 2 elements of type 7");
  Members two(2);
  const float sent[2] = {1.5F, 2.5F};
  std::memcpy(two.of(0).in(), sent, sizeof sent);
  CHECK(two.said_of([](const Member& m) { m.is(0) ? m.send(2) : m.receive(2); }) == "");
  CHECK(std::memcmp(two.of(1).out(), sent, sizeof sent) == 0);
}

TEST_CASE("The fake NCCL compares where tensors lie in memory that all have registered", "[unit][gpu]") {
  const auto reduce_at = [](const Member& m, std::byte* in) {
    m.nccl.all_reduce(in, m.registered(), 4, kFloat, 0, m.comm, m.stream->handle());
  };
  const std::string call = "all_reduce of 4 elements of type 7, sum";
  const std::string out = ", output at 0 of registered memory";
  CHECK(said_of(2, [&](const Member& m) { reduce_at(m, m.registered() + (m.is(1) ? 32 : 16)); }) ==
        "members make different calls: member 1 makes " + call + ", input at 32 of registered memory" + out +
            "; member 0 makes " + call + ", input at 16 of registered memory" + out);
  CHECK(said_of(2, [&](const Member& m) { reduce_at(m, m.is(1) ? m.in() : m.registered() + 16); }) ==
        "members make different calls: member 1 makes " + call + out + "; member 0 makes " + call +
            ", input at 16 of registered memory" + out);
  CHECK(said_of(2, [&](const Member& m) { reduce_at(m, m.registered() + 16); }) == "");
}

TEST_CASE("Members of the fake NCCL whose calls differ get nothing, and its refusals are NCCL's", "[unit][gpu]") {
  Members two(2);
  for (int rank = 0; rank < 2; ++rank) std::memset(two.of(rank).in(), 1, kBytes);
  CHECK(two.said_of([](const Member& m) { m.all_reduce(m.is(1) ? 3 : 4); }) != "");
  for (int rank = 0; rank < 2; ++rank) CHECK(*two.of(rank).out() == std::byte{0});
  const Member& one = two.of(0);
  void* const stream = one.stream->handle();
  constexpr int kInvalidArgument = 4;
  CHECK(one.nccl.broadcast(one.in(), one.out(), 4, kFloat, 2, one.comm, stream) == kInvalidArgument);
  CHECK(one.nccl.send(one.in(), 4, kFloat, -1, one.comm, stream) == kInvalidArgument);
  CHECK(one.nccl.all_reduce(one.in(), one.out(), 4, static_cast<Type>(12), 0, one.comm, stream) == kInvalidArgument);
  CHECK(one.nccl.all_reduce(one.in(), one.out(), 4, kFloat, -1, one.comm, stream) == kInvalidArgument);
  CHECK(taken_breaches() == "");
}

}  // namespace hvd::collectives::nccl
