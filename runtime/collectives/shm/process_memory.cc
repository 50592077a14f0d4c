#include "runtime/collectives/shm/process_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/collectives/shm/segment.h"
#include "runtime/crypto/secret.h"

namespace hvd::collectives {

// The kernel may stop anywhere; the next call then begins there, and has the error if there is one.
int read_pieces(const ReadProcess& read, pid_t process, std::span<const ForeignPiece> pieces) {
  constexpr std::size_t kMost = 256;  // of a call; the kernel takes 1024
  std::array<iovec, kMost> to;
  std::array<iovec, kMost> from;
  std::size_t done = 0;  // of the first piece
  while (!pieces.empty()) {
    const std::size_t count = std::min(kMost, pieces.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t skip = i == 0 ? done : 0;
      to[i] = {pieces[i].to + skip, pieces[i].bytes - skip};
      from[i] = {const_cast<std::byte*>(pieces[i].from) + skip, pieces[i].bytes - skip};
    }
    const ssize_t got = read(process, to.data(), count, from.data(), count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EFAULT;
    done += static_cast<std::size_t>(got);
    while (!pieces.empty() && done >= pieces.front().bytes) {
      done -= pieces.front().bytes;
      pieces = pieces.subspan(1);
    }
  }
  return 0;
}

int find_process(const ReadProcess& read, const ProcessName& name) {
  ProcessName::Nonce found{};
  const ForeignPiece piece{reinterpret_cast<std::byte*>(found.data()), name.address, found.size()};
  const int error = read_pieces(read, static_cast<pid_t>(name.process), {&piece, 1});
  return error != 0 ? error : found == name.nonce ? 0 : EIDRM;
}

Result<OwnName> OwnName::make() {
  const std::size_t bytes = ShmSegment::page();
  void* const page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return Status::from_errno("a page for this process' name", errno);
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(page), [bytes](std::byte* at) { ::munmap(at, bytes); });
  if (::madvise(page, bytes, MADV_WIPEONFORK) != 0) return Status::from_errno("MADV_WIPEONFORK", errno);
  ProcessName name{.process = ::getpid(), .address = memory.get()};
  crypto::random_bytes(name.nonce);
  std::memcpy(page, name.nonce.data(), name.nonce.size());
  return OwnName(std::move(memory), name);
}

}  // namespace hvd::collectives
