#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/thread.h"
#include "runtime/collectives/local_backend.h"
#include "runtime/engine/executor.h"
#include "test/runtime/collectives/gloo/rank_threads.h"
#include "test/runtime/engine/session_support.h"
#include "test/runtime/engine/strict_backend.h"

// Members of a process set that has several backends: executors and lanes on N threads, without negotiation.
namespace hvd::engine {

using test::StrictBackends;

inline constexpr const char* kOnDevice = "device";  // a tensor of this name counts as agreed to lie on devices

// Hands everything to another backend, and writes down what it was given and whether others ran meanwhile.
class Observed final : public collectives::CollectiveBackend {
 public:
  struct Log {
    std::mutex mutex;
    std::vector<std::string> lines;
    const collectives::CollectiveBackend* running = nullptr;
    int under_way = 0;
  };
  Observed(std::unique_ptr<collectives::CollectiveBackend> inner, std::shared_ptr<Log> log)
      : inner_(std::move(inner)), log_(std::move(log)) {}
  std::string_view name() const override { return inner_->name(); }
  std::string why_not(const collectives::CallTraits& call) const override { return inner_->why_not(call); }
  collectives::BackendTraits traits() const override { return inner_->traits(); }
  void start(const collectives::CollectiveCall& call, collectives::Completion done) override {
    {
      const std::lock_guard lock(log_->mutex);
      const bool is_beside_another = log_->under_way > 0 && log_->running != this;
      log_->running = this;
      ++log_->under_way;
      log_->lines.push_back(std::string(name()) + " " + std::string(op_type_name(call.op)) +
                            (is_beside_another ? " beside another backend" : ""));
    }
    inner_->start(call, [log = log_, done = std::move(done)](Status status) {
      {
        const std::lock_guard lock(log->mutex);
        --log->under_way;
      }
      done(std::move(status));
    });
  }
  const collectives::Memory& memory(collectives::MemoryKind kind) const override { return inner_->memory(kind); }
  std::shared_ptr<void> allocate_staging(collectives::MemoryKind kind, std::size_t bytes) override {
    return inner_->allocate_staging(kind, bytes);
  }
  void abort(const Status& why) override {
    inner_->abort(why);
    const std::lock_guard lock(log_->mutex);
    log_->lines.push_back(std::string(name()) + " abort: " + why.message());
  }

 private:
  std::unique_ptr<collectives::CollectiveBackend> inner_;
  std::shared_ptr<Log> log_;
};

// What a rank has of the engine, with the strict backend first and Gloo after it. Its thread plays the engine's.
class Member {
 public:
  Member(int rank, int size, StrictBackends& strict, transport::Fabric& fabric)
      : rank_(rank),
        size_(size),
        fabric_(fabric),
        table_(rank, topology::initial_sets(size), recorder_),
        executor_(rank, table_, recorder_,
                  [this, &strict](const topology::ProcessSet& set) {
                    return set.size() > 1 ? make_list(strict) : collectives::local_backends();
                  },
                  {[](std::int32_t, std::uint64_t) {}, [](std::uint64_t) {},
                   [this](const Status& why, const std::vector<PendingOperationPtr>& operations) {
                     table_.complete(operations, why);
                   }}) {}
  ~Member() {
    executor_.take_lanes();
    executor_.drop_backends();
  }

  int rank() const { return rank_; }
  // What one decision releases, as all ranks agreed on it. `joined` ranks have not submitted it.
  std::vector<HandlePtr> run(std::vector<Operation> operations, std::uint64_t fuse_up_to = 0, bool joined = false) {
    std::vector<HandlePtr> handles;
    negotiation::WorkerOutput output;
    output.limits.threshold = fuse_up_to;
    output.released = {kGlobalProcessSet};
    for (Operation& operation : operations) handles.push_back(table_.add(std::move(operation)).value());
    output.sets = table_.sets();
    for (const auto& own : table_.fetch()) {
      output.ready.push_back({response_to(own.request), joined ? negotiation::OperationId::kNone : own.operation});
    }
    executor_.execute(output);
    return handles;
  }
  void abort(const Status& why) { executor_.abort(why); }
  std::vector<std::string> log() const {
    const std::lock_guard lock(log_->mutex);
    return log_->lines;
  }

 private:
  std::shared_ptr<collectives::BackendList> make_list(StrictBackends& strict) {
    collectives::GlooContextSource source;
    source.make = collectives::contexts_of(fabric_, collectives::all_of(size_)).make;
    std::vector<std::unique_ptr<collectives::CollectiveBackend>> list;
    list.push_back(std::make_unique<Observed>(strict.backend(rank_), log_));
    list.push_back(std::make_unique<Observed>(std::make_unique<collectives::GlooBackend>(std::move(source)), log_));
    return std::make_shared<collectives::BackendList>(std::move(list));
  }

  std::shared_ptr<const wire::Response> response_to(const wire::Request& request) const {
    wire::Response response;
    response.op = request.op;
    response.dtype = request.dtype;
    response.reduce_op = request.reduce_op;
    response.root_rank = request.root_rank;
    response.prescale = request.prescale;
    response.postscale = request.postscale;
    response.shape = request.shape;
    response.name = request.name;
    response.on_gpu = request.name == kOnDevice;
    if (request.op == OpType::kAllgather) {
      response.first_dims.assign(static_cast<std::size_t>(size_), request.shape.front());
    }
    return std::make_shared<const wire::Response>(std::move(response));
  }

  const int rank_;
  const int size_;
  const std::shared_ptr<Observed::Log> log_ = std::make_shared<Observed::Log>();
  transport::Fabric& fabric_;
  recorder::FlightRecorder recorder_;
  OperationTable table_;
  Executor executor_;
};

// Runs `body` on a thread per rank; all end together, as in a job. Gives what went wrong.
inline std::string run_members(StrictBackends& strict, const std::function<void(Member&, test::Problems&)>& body) {
  const int size = strict.ranks();
  test::Problems problems;
  {
    const test::FabricGroup fabrics = collectives::loopback_fabrics(size);
    std::barrier all_done(size);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.push_back(start_thread("rank-" + std::to_string(rank), [&, rank](const std::stop_token&) {
        Member member(rank, size, strict, fabrics.of(rank));
        body(member, problems);
        all_done.arrive_and_wait();
      }));
    }
  }
  return problems.text() + strict.breaches();
}

}  // namespace hvd::engine
