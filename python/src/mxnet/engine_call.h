#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "horovod/session.h"
#include "python/src/interrupts.h"
#include "python/src/mxnet/array.h"
#include "python/src/mxnet/c_api.h"
#include "runtime/base/event.h"

namespace hvd::mxnet {

// What one call does: `common` is all of an Operation but tensors and, in a group, the members' names.
struct Request {
  Operation common;
  bool is_grouped = false;
  std::vector<Array> inputs{};
  std::vector<Array> outputs{};  // one for each input, the same where it works in place; none: the core allocates them
};

// One collective call in MXNet's engine. The engine runs it when all arrays are ready; it then submits to the session
// and returns, so that no worker of the engine waits for other ranks: they may run calls in another order. The engine
// hears of the end from whichever thread ends the last operation, and lets what depends on the arrays go on then.
//
// Shared by the engine (as the parameter of the functions below), the operations it has submitted, which need its
// arrays, and Python's object. Thread-safe. An interrupt ends the engine's operation, not the session's.
class EngineCall final : public python::Interruptible, public std::enable_shared_from_this<EngineCall> {
 public:
  explicit EngineCall(Request request);
  EngineCall(const EngineCall&) = delete;
  EngineCall& operator=(const EngineCall&) = delete;
  ~EngineCall() override = default;

  // Once. `priority`: the engine begins ready operations with the highest first. The operation is one of the session
  // that is published now: it fails if that has ended, or there was none, when the engine begins it.
  Status push(int priority);

  // Whether it has ended; waits for that so long.
  bool wait_for(std::chrono::milliseconds limit) { return ended_.wait_for(limit); }
  // The following Require: it has ended.
  bool was_skipped() const { return skipped_; }  // by the engine, because what an input depends on has failed
  const Status& status() const { return status_; }

  struct Output {
    std::shared_ptr<void> memory;
    Shape shape;
    DataType dtype{};
  };
  // Those that the core allocated, and of an alltoall how many rows came from each rank. Requires: status() is OK.
  const Output& output(std::size_t index) const { return results_.at(index); }
  const std::vector<std::int64_t>& received_splits() const { return received_splits_; }

  void interrupt() override;

 private:
  static void run(void* run_context, void* on_complete, void* parameter);
  static void drop(void* parameter);

  void start(const OnComplete& on_complete);
  // The session of push(), if it still is the published one.
  Result<std::shared_ptr<Session>> own_session() const;
  Status submit();
  Status attach(Operation& operation, std::size_t index, const std::shared_ptr<PagePool>& pages);
  void complete(std::size_t index, const Handle& handle);
  // Tells the engine, the first time.
  void finish(const Status& status);

  Request request_;
  // Written by push().
  Status had_session_;
  std::weak_ptr<Session> session_;
  std::vector<Output> results_;
  std::vector<std::int64_t> received_splits_;

  std::mutex mutex_;
  std::optional<OnComplete> on_complete_;  // from the start until the end
  std::size_t missing_;                    // operations that have not completed
  Status first_error_;
  // Written before `ended_` is set.
  Status status_;
  bool skipped_ = false;
  Event ended_;
};

}  // namespace hvd::mxnet
