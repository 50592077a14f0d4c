#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/cpp/processes.h"
#include "runtime/base/fd.h"

namespace hvd::bench {

// A ring of plain loopback TCP connections, one process a rank, one thread each: the bound for everything that goes
// through TCP on one host.
class TcpRing {
 public:
  TcpRing(int rank, int size, Shared& shared);
  // Sends `bytes` to the right while receiving as many from the left, through `memory` of `room` bytes, again and
  // again.
  void exchange(std::uint8_t* memory, std::size_t room, std::size_t bytes);

 private:
  Fd right_;
  Fd left_;
};

}  // namespace hvd::bench
