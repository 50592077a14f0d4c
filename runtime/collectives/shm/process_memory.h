#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "runtime/base/status.h"

// Reading what lies in another process of the same user (process_vm_readv, "cross-memory attach").
namespace hvd::collectives {

// As process_vm_readv(2), which it is outside tests.
using ReadProcess =
    std::function<ssize_t(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long)>;

// Bytes of another process, and where they go here.
struct ForeignPiece {
  std::byte* to;
  const std::byte* from;  // an address there
  std::size_t bytes;      // > 0
};

// Reads all of them. 0, or the errno that says why the next byte could not be read.
int read_pieces(const ReadProcess& read, pid_t process, std::span<const ForeignPiece> pieces);

// What tells one process from any other that has its number, now, later or in another namespace: random bytes at an
// address of it. Plain bytes, which other processes get.
struct ProcessName {
  using Nonce = std::array<std::uint8_t, 16>;
  std::int64_t process = 0;
  const std::byte* address = nullptr;
  Nonce nonce{};
};

// 0 when the process with this number has the nonce; EIDRM when it has something else there; or why it can't be read.
int find_process(const ReadProcess& read, const ProcessName& name);

// Keeps such random bytes in this process, on a page of their own: a forked child has zeros there. Immutable.
class OwnName {
 public:
  static Result<OwnName> make();
  const ProcessName& name() const { return name_; }

 private:
  OwnName(std::shared_ptr<std::byte> page, const ProcessName& name) : page_(std::move(page)), name_(name) {}

  std::shared_ptr<std::byte> page_;
  ProcessName name_;
};

}  // namespace hvd::collectives
