#pragma once

#include <string>
#include <vector>

#include "horovod/session.h"
#include "python/src/xla/call.h"

// What collectives in programs of any framework that XLA compiles have in common.
namespace hvd::xla {

// An operation without tensors and name, from the attributes process_set_id, reduce_op, prescale_factor and
// postscale_factor. kInvalidArgument for a reduce_op that is none.
Result<Operation> read_operation(const XlaCall& call, OpType op);

// "a,b,c" in pieces; "" is one piece.
std::vector<std::string> split(const std::string& text, char separator);

// Waits until it is done. The memory is the program's: there is no way back before the core is done with it. So Ctrl-C
// meanwhile ends the session, and with it the wait. Whether it did.
bool wait_until_done(const HandlePtr& handle);

}  // namespace hvd::xla
