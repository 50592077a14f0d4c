#include "runtime/collectives/backend_list.h"

#include <catch2/catch.hpp>
#include <optional>

#include "runtime/collectives/local_backend.h"

namespace hvd::collectives {
namespace {

// Takes calls of at least so many bytes.
class Sized final : public CollectiveBackend {
 public:
  Sized(std::string name, std::uint64_t least, PeerProgress progress, std::vector<std::string>& aborted)
      : name_(std::move(name)), least_(least), progress_(std::move(progress)), aborted_(aborted) {}
  std::string_view name() const override { return name_; }
  std::string why_not(const CallTraits& call) const override {
    return call.bytes >= least_ ? "" : std::to_string(call.bytes) + " bytes";
  }
  void start(const CollectiveCall&, Completion done) override { done(Status::ok()); }
  const Memory& memory(MemoryKind) const override { return host_memory(); }
  std::shared_ptr<void> allocate_staging(MemoryKind, std::size_t) override { return nullptr; }
  void abort(const Status& why) override { aborted_.push_back(name_ + ": " + why.message()); }
  PeerProgress progress() const override { return progress_; }

 private:
  std::string name_;
  std::uint64_t least_;
  PeerProgress progress_;
  std::vector<std::string>& aborted_;
};

TEST_CASE("A list gives a call to the first backend that takes it and says why others did not", "[unit][collectives]") {
  std::vector<std::string> aborted;
  std::vector<std::unique_ptr<CollectiveBackend>> backends;
  backends.push_back(std::make_unique<Sized>("huge", 1000, PeerProgress{3, {2, 5}}, aborted));
  backends.push_back(std::make_unique<Sized>("large", 100, PeerProgress{4, {1, 2}}, aborted));
  const BackendList list(std::move(backends));

  const auto huge = list.choose({.bytes = 1000});
  REQUIRE(huge.backend != nullptr);
  CHECK(huge.backend->name() == "huge");
  CHECK(huge.declined == "");
  const auto large = list.choose({.bytes = 999});
  REQUIRE(large.backend != nullptr);
  CHECK(large.backend->name() == "large");
  CHECK(large.declined == "huge: 999 bytes");
  const auto none = list.choose({.bytes = 99});
  CHECK(none.backend == nullptr);
  CHECK(none.declined == "huge: 99 bytes; large: 99 bytes");

  // Both may be running something, or be about to.
  list.abort(Status::aborted("enough"));
  CHECK(aborted == std::vector<std::string>{"huge: enough", "large: enough"});
  CHECK(list.progress() == PeerProgress{7, {1, 2, 5}});
}

Status run(CollectiveBackend& backend, const CollectiveCall& call) {
  std::optional<Status> result;
  backend.start(call, [&](Status status) { result = std::move(status); });
  return result.value_or(Status::internal("not complete"));
}

TEST_CASE("The collectives of one rank give its input, scaled", "[unit][collectives]") {
  LocalBackend backend;
  const std::vector<float> input{2, 4, 6};
  std::vector<float> output(3);
  CollectiveCall call{.input = input.data(), .output = output.data(), .scaling = {0.5, 3}, .count = 3};
  for (const OpType op : {OpType::kAllreduce, OpType::kAdasum, OpType::kReducescatter}) {
    call.op = op;
    call.rank_counts.assign(op == OpType::kReducescatter ? 1 : 0, 3);
    output.assign(3, 0);
    CHECK(run(backend, call).is_ok());
    CHECK(output == std::vector<float>{3, 6, 9});
  }
  for (const OpType op : {OpType::kAllgather, OpType::kAlltoall}) {
    call.op = op;
    call.rank_counts = {3};
    output.assign(3, 0);
    CHECK(run(backend, call).is_ok());
    CHECK(output == input);
  }
  CHECK(run(backend, {.op = OpType::kAllreduce, .output = output.data(), .scaling = {2}, .count = 3}).is_ok());
  CHECK(output == std::vector<float>{4, 8, 12});  // in place
  CHECK(run(backend, {.op = OpType::kBroadcast, .output = output.data(), .count = 3}).is_ok());
  CHECK(output == std::vector<float>{4, 8, 12});
  CHECK(run(backend, {.op = OpType::kBarrier}).is_ok());
  CHECK(backend.why_not({.memory = MemoryKind::kDevice}) == "it reaches host memory only");
}

TEST_CASE("Host memory is aligned, and there may be none", "[unit][collectives]") {
  const auto memory = host_memory().allocate(100);
  REQUIRE(memory != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(memory.get()) % Memory::kAlignment == 0);
  CHECK(host_memory().allocate(std::size_t{1} << 62) == nullptr);
  host_memory().zero(nullptr, 0);
  host_memory().copy(nullptr, memory.get(), 0);
}

}  // namespace
}  // namespace hvd::collectives
