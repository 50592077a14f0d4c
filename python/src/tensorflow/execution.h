#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "horovod/session.h"
#include "python/src/interrupts.h"
#include "python/src/tensorflow/c_api.h"
#include "runtime/base/page_pool.h"

namespace hvd::tensorflow {

// One run of an asynchronous kernel, from compute to `done`. Shared by the operations it has submitted, and gone when
// the last of them has completed. Made on an executor thread; completed on any. It does not know what the operations
// are.
//
// An interrupt ends the run, not the operations: they go on with the tensors, which stay alive for them, and with
// memory of our own where they ask for more. The context is touched before the end of the run only, under the lock.
class Execution final : public python::Interruptible, public std::enable_shared_from_this<Execution> {
 public:
  // `parts`: how many operations have to complete.
  Execution(TF_OpKernelContext* context, std::function<void()> done, int parts, int outputs);
  ~Execution() override;
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Where memory for large results comes from; before anything below.
  void use(std::shared_ptr<PagePool> pages) { pages_ = std::move(pages); }
  // The input's memory, which a reference keeps until `done`.
  Result<TensorRef> input(int index);
  // The same, and memory for an output of its shape: the input's own when nobody else uses it. TensorFlow tells that
  // only by allocating memory, which is never used for the first time for nothing. So `shared`, a bit for each of the
  // first 64 inputs of the kernel, remembers which large ones were used by others: their outputs come from the pool
  // from then on.
  struct InOut {
    TensorRef input;
    void* output;
  };
  Result<InOut> input_and_output(int index, std::atomic<std::uint64_t>& shared);
  // Any thread. After an interrupt: memory that nobody will look at.
  Result<void*> allocate_output(int index, DataType dtype, const Shape& shape);

  // All operations are submitted: from here on Ctrl-C ends the run.
  void await();
  void interrupt() override;
  // One operation has ended. The last one ends the run: after that the context is not touched any more.
  void complete(const Status& status);
  // Nothing was submitted: ends the run. Does nothing after its end.
  void refuse(const Status& status);
  // A failure with a code that no Status has.
  void refuse(TfCode code, const std::string& why);

 private:
  // The memory, and whether it is the input's.
  Result<std::pair<void*, bool>> output_like_input(int index, const Shape& shape);
  // An output whose memory comes from the pool and goes back when TensorFlow is done with the tensor.
  Result<void*> output_from_pool(int index, DataType dtype, const Shape& shape, std::size_t bytes);
  // Takes `done` out, which only one caller gets: it owns the context from there.
  std::function<void()> take_done();
  void release_tensors();
  void finish(TfCode code, const std::string& why);
  void* memory_for_nobody(std::size_t bytes);

  TF_OpKernelContext* context_;
  std::function<void()> done_;
  std::shared_ptr<PagePool> pages_;
  std::vector<TF_Tensor*> inputs_;
  std::vector<TF_Tensor*> outputs_;
  std::vector<std::unique_ptr<std::byte[]>> unused_;
  std::mutex mutex_;
  int missing_;
  Status first_error_;
};
// What an interrupted run says.
extern const char* const kInterrupted;

using ExecutionPtr = std::shared_ptr<Execution>;

}  // namespace hvd::tensorflow
