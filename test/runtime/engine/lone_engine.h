#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/engine_loop.h"
#include "test/runtime/engine/session_support.h"

namespace hvd::engine {

using SentTo = std::vector<std::pair<int, Bytes>>;

// Keeps what is sent. Its messages are read after the engine's thread has ended.
class KeptLinks final : public transport::ControlLinks {
 public:
  explicit KeptLinks(std::shared_ptr<SentTo> sent) : sent_(std::move(sent)) {}
  void send(int to_rank, Bytes message) override { sent_->emplace_back(to_rank, std::move(message)); }
  void close(std::function<void()> closed) override { closed(); }

 private:
  std::shared_ptr<SentTo> sent_;
};

// An engine of rank `rank` among `size`.
struct Rank {
  Rank(int rank, int size, BackendFactory backends = {})
      : table(rank, topology::initial_sets(size), recorder),
        changes(size),
        engine(options(rank, size), table, *small, changes, recorder, std::move(backends),
               [this](const wire::Stop& stop) { reason = stop.message; }) {}
  ~Rank() {
    engine.force_stop({wire::Stop::Kind::kShutdown, -1, "the end of the test"});
    end();
  }
  static EngineOptions options(int rank, int size) {
    EngineOptions options;
    options.coordinator.tree = topology::TreePlan(size);
    options.worker.rank = rank;
    options.pages = PagePool::make({});
    return options;
  }
  void end() {
    if (!std::exchange(ended, true)) engine.finish(Deadline::after(Millis(10000)), [] {});
  }

  recorder::FlightRecorder recorder;
  OperationTable table;
  std::shared_ptr<SmallExchange> small = std::make_shared<SmallExchange>(
      0, table, [](const topology::ProcessSet&) { return nullptr; }, SmallExchange::Engine{[] {}});
  SetChanges changes;
  std::string reason;
  std::shared_ptr<SentTo> sent = std::make_shared<SentTo>();
  EngineLoop engine;
  bool ended = false;
};

}  // namespace hvd::engine
