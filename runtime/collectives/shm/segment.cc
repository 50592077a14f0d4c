#include "runtime/collectives/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/failpoint.h"

namespace hvd::collectives {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t proof_bytes(int members) {
  return ShmSegment::pages((static_cast<std::size_t>(members) + 1) * ShmSegment::kNonceSize);
}
std::size_t line_bytes(int members) { return ShmSegment::pages(static_cast<std::size_t>(members) * sizeof(ShmLine)); }
std::size_t slots_bytes(int members) {
  return static_cast<std::size_t>(members) * ShmRegion::kSlots * ShmRegion::kSlotBytes;
}
std::size_t region_bytes(int members) { return line_bytes(members) + slots_bytes(members) + ShmRegion::kExchangeBytes; }
// All but the arenas.
std::size_t fixed_bytes(int members) {
  return proof_bytes(members) + static_cast<std::size_t>(ShmSegment::kRegions) * region_bytes(members);
}

Result<Fd> make_memory(std::size_t bytes) {
  // Hardened systems (vm.memfd_noexec) want to be told that nobody will execute it; older kernels do not know that
  // flag.
  constexpr unsigned kNoExecSeal = 8;
  Fd fd(HVD_FAILPOINT_CALL("shm.memory", ::memfd_create("hvd-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal)));
  if (!fd.valid() && errno == EINVAL) fd = Fd(::memfd_create("hvd-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::from_errno("memfd_create", errno);
  if (HVD_FAILPOINT_CALL("shm.size", ::ftruncate(fd.get(), static_cast<off_t>(bytes))) != 0) {
    return Status::from_errno(std::to_string(bytes) + " bytes of shared memory", errno);
  }
  // A mapping whose end is cut off kills who touches it.
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return Status::from_errno("sealing of shared memory", errno);
  return fd;
}

}  // namespace

std::size_t ShmSegment::page() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t ShmSegment::usual_arena_bytes(int members) {
  rlimit addresses = {};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur != RLIM_INFINITY) return 0;
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page() / static_cast<std::size_t>(members);
}

Result<std::pair<std::shared_ptr<ShmSegment>, Fd>> ShmSegment::create(int members, std::size_t arena_bytes) {
  const std::size_t arenas = arena_bytes / page() * page() * static_cast<std::size_t>(members);
  HVD_ASSIGN_OR_RETURN(Fd fd, make_memory(fixed_bytes(members) + arenas));
  HVD_ASSIGN_OR_RETURN(auto segment, map(fd, members));
  return std::pair{std::move(segment), std::move(fd)};
}

Result<std::shared_ptr<ShmSegment>> ShmSegment::map(const Fd& fd, int members) {
  HVD_FAILPOINT_RETURN("shm.map");
  struct stat found = {};
  if (::fstat(fd.get(), &found) != 0) return Status::from_errno("fstat of shared memory", errno);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  const auto bytes = static_cast<std::size_t>(found.st_size);
  const std::size_t arenas = bytes - std::min(bytes, fixed_bytes(members));
  if (bytes < fixed_bytes(members) || arenas % (page() * static_cast<std::size_t>(members)) != 0 ||
      (seals & kSeals) != kSeals) {
    return Status::internal("shared memory of " + std::to_string(bytes) + " bytes with seals " + std::to_string(seals) +
                            ", expected " + std::to_string(fixed_bytes(members)) +
                            " bytes and whole pages for each of " + std::to_string(members) + " ranks, and seals " +
                            std::to_string(kSeals));
  }
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return Status::from_errno("mapping of " + std::to_string(bytes) + " bytes", errno);
  std::shared_ptr<ShmSegment> segment(
      new ShmSegment(static_cast<std::byte*>(memory), members, arenas / static_cast<std::size_t>(members)));
  // A child of a rank takes no part in its collectives, and would keep the memory alive. A core file would take in all
  // pages, also those that nobody has touched.
  for (const int advice : {MADV_DONTFORK, MADV_DONTDUMP}) {
    if (::madvise(memory, bytes, advice) != 0) return Status::from_errno("madvise of shared memory", errno);
  }
  return segment;
}

Status ShmSegment::probe() { return make_memory(page()).status(); }

// A child has something else at these addresses, or nothing.
ShmSegment::~ShmSegment() {
  if (is_here()) ::munmap(memory_, fixed_bytes(members_) + bytes_of_arenas());
}

bool ShmSegment::is_here() const { return ::getpid() == owner_; }

ShmRegion ShmSegment::region(std::uint64_t index) const {
  HVD_CHECK(index < kRegions, "a segment has no such region");
  std::byte* const begin = memory_ + proof_bytes(members_) + static_cast<std::size_t>(index) * region_bytes(members_);
  std::byte* const slots = begin + line_bytes(members_);
  return {reinterpret_cast<ShmLine*>(begin), slots, slots + slots_bytes(members_)};
}

std::span<std::uint8_t, ShmSegment::kNonceSize> ShmSegment::proof(int member) const {
  auto* const proofs = reinterpret_cast<std::uint8_t*>(memory_);
  return std::span<std::uint8_t, kNonceSize>(proofs + static_cast<std::size_t>(member + 1) * kNonceSize, kNonceSize);
}

std::byte* ShmSegment::arenas() const { return memory_ + fixed_bytes(members_); }

std::span<std::byte> ShmSegment::arena(int member) const {
  HVD_CHECK(member >= 0 && member < members_, "a segment has an arena for each member");
  return {arenas() + static_cast<std::size_t>(member) * arena_bytes_, arena_bytes_};
}

std::optional<std::uint64_t> ShmSegment::offset_of(const void* memory, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(arenas());
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (address < begin || at(address - begin, bytes) == nullptr) return std::nullopt;
  return address - begin;
}

std::byte* ShmSegment::at(std::uint64_t offset, std::size_t bytes) const {
  const bool is_inside = bytes <= bytes_of_arenas() && offset <= bytes_of_arenas() - bytes;
  return is_inside ? arenas() + offset : nullptr;
}

}  // namespace hvd::collectives
