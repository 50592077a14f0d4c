#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "horovod/session.h"
#include "python/src/tensorflow/c_api.h"

namespace hvd::tensorflow {

// One run of an asynchronous kernel, from compute to `done`. Shared by the operations it has submitted, and gone when the
// last of them has completed. Made on an executor thread; completed on lanes. It does not know what the operations are.
class Execution : public std::enable_shared_from_this<Execution> {
 public:
  // `parts`: how many operations have to complete.
  Execution(TF_OpKernelContext* context, std::function<void()> done, int parts, int outputs);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // The input's memory, which a reference keeps until `done`.
  Result<TensorRef> input(int index);
  // The same, and memory for an output of its shape: the input's own when nobody else uses it.
  struct InOut {
    TensorRef input;
    void* output;
  };
  Result<InOut> input_and_output(int index);
  // Any thread, one at a time for each run.
  Result<void*> allocate_output(int index, DataType dtype, const Shape& shape);

  // One operation has ended. The last one ends the run: after that the context is not touched any more.
  void complete(const Status& status);
  // Nothing was submitted: ends the run.
  void refuse(const Status& status);
  // A failure with a code that no Status has.
  void refuse(TfCode code, const std::string& why);

 private:
  Result<void*> output_like_input(int index, const Shape& shape);
  void finish(TfCode code, const std::string& why);

  TF_OpKernelContext* context_;
  std::function<void()> done_;
  std::vector<TF_Tensor*> inputs_;
  std::vector<TF_Tensor*> outputs_;
  std::mutex mutex_;
  int missing_;
  Status first_error_;
};
using ExecutionPtr = std::shared_ptr<Execution>;

}  // namespace hvd::tensorflow
