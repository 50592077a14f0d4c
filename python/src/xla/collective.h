#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "horovod/session.h"
#include "python/src/xla/call.h"

// What collectives in programs of any framework that XLA compiles have in common.
namespace hvd::xla {

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

// The operations of a call, one for each of its tensors on `device`, and where their results go. The call's last
// argument and result are the token that orders calls. Attributes: names, with `separator` between them,
// process_set_id, reduce_op, prescale_factor, postscale_factor and root_rank. kInvalidArgument for a reduce_op that is
// none.
Result<std::vector<Operation>> read_operations(const XlaCall& call, OpType op, char separator, int device,
                                               std::deque<ResultPlace>& results);

using Handles = std::vector<HandlePtr>;
using GroupSizes = std::vector<std::size_t>;  // how many operations each group has; empty: each goes by itself

// All are on their way before the first is waited for, so their order does not matter to other ranks. What is refused
// leaves in `handles` what was submitted before.
Status submit(Session& session, std::vector<Operation> operations, const GroupSizes& groups, Handles& handles);

// Why a call failed.
struct CallFailure {
  Status status;
  bool interrupted = false;  // by Ctrl-C
};

// Waits for all, whatever became of the rest, because XLA uses the memory again afterwards: on a GPU in the order of
// its stream. The first failure, which `submitted` may be. `equal_rows`, `otherwise`: see ResultPlace::check().
CallFailure finish(const Handles& handles, const std::deque<ResultPlace>& results, const Place& place, Status submitted,
                   bool equal_rows, std::string_view otherwise);

// Waits until it is done. The memory is the program's: there is no way back before the core is done with it. So Ctrl-C
// meanwhile ends the session, and with it the wait. Whether it did.
bool wait_until_done(const HandlePtr& handle);

}  // namespace hvd::xla
