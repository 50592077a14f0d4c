#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "horovod/session.h"
#include "python/src/xla/call.h"

// What collectives in programs of any framework that XLA compiles have in common.
namespace hvd::xla {

// An operation without tensors and name, from the attributes process_set_id, reduce_op, prescale_factor,
// postscale_factor and root_rank. kInvalidArgument for a reduce_op that is none.
Result<Operation> read_operation(const XlaCall& call, OpType op);

// "a,b,c" in pieces; "" is one piece.
std::vector<std::string> split(const std::string& text, char separator);

// Where a program wants the result of one operation: memory of the shape that was compiled. Its address must not change
// before the operation is done. Made and checked by one thread; a lane asks for memory in between.
class ResultPlace {
 public:
  ResultPlace(std::string name, TensorRef wanted) : name_(std::move(name)), wanted_(std::move(wanted)) {}
  ResultPlace(const ResultPlace&) = delete;
  ResultPlace& operator=(const ResultPlace&) = delete;

  // Requires: the operation's kind and input are set.
  void attach_to(Operation& operation);
  // Of an operation that has ended well. kInvalidArgument when all ranks together have made another shape, which then
  // lies elsewhere, or where `equal_rows` was promised and ranks gave different numbers. `otherwise`: what a program
  // can do that needs that.
  Status check(const Handle& handle, bool equal_rows, std::string_view otherwise) const;

 private:
  Result<void*> memory_for(const Shape& shape);

  const std::string name_;
  const TensorRef wanted_;
  bool keeps_shape_ = false;
  std::shared_ptr<void> other_;  // takes a result of another shape, so that the collective ends as on other ranks
};

// Waits until it is done. The memory is the program's: there is no way back before the core is done with it. So Ctrl-C
// meanwhile ends the session, and with it the wait. Whether it did.
bool wait_until_done(const HandlePtr& handle);

}  // namespace hvd::xla
