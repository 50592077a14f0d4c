#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "horovod/session.h"
#include "test/support/own_session.h"

// What the tests of sessions share.
namespace hvd::test {

inline constexpr std::chrono::milliseconds kLimit{20000};

// In vain, it ends this thread's session, so that the caller may look at its tensors all the same.
inline Status wait(const HandlePtr& handle, std::chrono::milliseconds limit = kLimit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!handle->wait_for(limit)) {
    if (std::chrono::steady_clock::now() < end) continue;
    const Status late = Status::timeout("the handle was not done in time");
    OwnSession::give_up(late.message());
    return late;
  }
  return handle->status();
}

inline Status wait(const Result<HandlePtr>& handle) { return handle.is_ok() ? wait(handle.value()) : handle.status(); }

inline Operation allreduce(std::string name, std::vector<float>& data, ReduceOp op = ReduceOp::kSum,
                           std::int32_t process_set = kGlobalProcessSet) {
  Operation operation;
  operation.op = OpType::kAllreduce;
  operation.name = std::move(name);
  operation.process_set = process_set;
  operation.input = {data.data(), {static_cast<std::int64_t>(data.size())}, DataType::kFloat32, kCpuDevice};
  operation.output = data.data();
  operation.reduce_op = op;
  return operation;
}

// Puts the result into `all`, after `before` has returned, which runs on the lane.
inline Operation allgather(
    std::string name, std::vector<float>& mine, std::vector<float>& all, std::int32_t process_set = kGlobalProcessSet,
    std::function<void()> before = [] {}) {
  Operation operation = allreduce(std::move(name), mine, ReduceOp::kSum, process_set);
  operation.op = OpType::kAllgather;
  operation.output = nullptr;
  operation.allocate_output = [&all, before = std::move(before)](const Shape& shape) -> Result<void*> {
    before();
    all.resize(static_cast<std::size_t>(num_elements(shape)));
    return static_cast<void*>(all.data());
  };
  return operation;
}

// An operation without a tensor: join, barrier.
inline Operation without_tensor(OpType op, std::int32_t process_set = kGlobalProcessSet) {
  Operation operation;
  operation.op = op;
  operation.name = std::string(op_type_name(op)) + ".noname";
  operation.process_set = process_set;
  operation.input.dtype = DataType::kUint8;
  return operation;
}

// What went wrong, from any thread. Catch2's assertions are not thread-safe: ranks collect what they saw, the test's
// thread judges it.
class Problems {
 public:
  void expect(bool ok, const std::string& what) {
    if (ok) return;
    std::lock_guard lock(mutex_);
    text_ += what + "\n";
  }
  void expect_ok(const Status& status, const std::string& what) {
    expect(status.is_ok(), what + ": " + status.to_string());
  }
  void expect_code(const Status& status, StatusCode code, const std::string& part, const std::string& what) {
    const bool found = status.code() == code && status.message().find(part) != std::string::npos;
    expect(found, what + ": expected \"" + part + "\", got " + status.to_string());
  }
  std::string text() {
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

}  // namespace hvd::test
