#include "python/src/xla/collective.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>

#include "python/src/interrupts.h"
#include "python/src/published_session.h"
#include "runtime/base/status.h"

namespace hvd::xla {

namespace {

constexpr std::chrono::milliseconds kLook{1000};  // how often a wait wakes up; nothing depends on it

class UntilSessionEnds final : public python::Interruptible {
 public:
  void interrupt() override {
    interrupted_ = true;
    const auto session = python::published_session();
    if (session.is_ok()) session.value()->announce_failure("interrupted by Ctrl-C inside a compiled function");
  }
  bool interrupted() const { return interrupted_; }

 private:
  std::atomic<bool> interrupted_{false};
};

}  // namespace

Result<Operation> read_operation(const XlaCall& call, OpType op) {
  Operation operation;
  operation.op = op;
  HVD_ASSIGN_OR_RETURN(operation.process_set, call.integer("process_set_id"));
  HVD_ASSIGN_OR_RETURN(const std::int32_t reduce_op, call.integer("reduce_op"));
  if (reduce_op < 0 || reduce_op >= kReduceOpCount) {
    return Status::invalid_argument("reduce_op: expected 0 to " + std::to_string(kReduceOpCount - 1) + ", got " +
                                    std::to_string(reduce_op));
  }
  operation.reduce_op = static_cast<ReduceOp>(reduce_op);
  HVD_ASSIGN_OR_RETURN(operation.prescale, call.number("prescale_factor"));
  HVD_ASSIGN_OR_RETURN(operation.postscale, call.number("postscale_factor"));
  return operation;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(separator, start), text.size());
    pieces.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return pieces;
}

bool wait_until_done(const HandlePtr& handle) {
  const auto interruptible = std::make_shared<UntilSessionEnds>();
  if (!handle->done() && !python::interrupts().add(interruptible)) interruptible->interrupt();
  while (!handle->wait_for(kLook)) {
  }
  python::interrupts().remove(interruptible.get());
  return interruptible->interrupted();
}

}  // namespace hvd::xla
