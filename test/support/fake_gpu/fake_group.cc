#include "test/support/fake_gpu/fake_group.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

#include "test/support/fake_gpu/fake_communicator.h"
#include "test/support/fake_gpu/fake_driver.h"

namespace fake_nccl {

namespace {

constexpr std::size_t kSlotBytes = sizeof(Slot) * kMostMembers;
// Nobody has aborted for so long: the test waits for nothing, and gets to know.
constexpr std::chrono::seconds kPatience{200};
// Other processes have nothing that they could wake this one with, and a member that has died wakes nobody.
constexpr std::chrono::microseconds kBetweenLooks{100};

// Where a member lays down its call: in turns, as the others may still read the one before. The file has holes.
off_t place_of(int rank, std::uint64_t round) {
  return static_cast<off_t>(static_cast<std::uint64_t>(2 * rank + 1) + round % 2) << 34;
}

off_t whole(ssize_t done, std::size_t n) {
  if (done != static_cast<ssize_t>(n)) breach("the file in which members meet is cut off");
  return static_cast<off_t>(n);
}

}  // namespace

Group::Group(const std::vector<std::string>& ids, int of_size, int rank, int bus, bool fails)
    : size(of_size),
      rank_(rank),
      name_(std::filesystem::temp_directory_path() / ids.front()),
      file_(open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  whole(pwrite(file_, "", 1, kSlotBytes), 1);  // makes the file longer, and never shorter
  void* const memory = mmap(nullptr, kSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("members cannot meet in " + name_);
  slots_ = static_cast<Slot*>(memory);
  if (own().size != 0) breach("two members have the rank " + std::to_string(rank_));
  own().bus = bus;
  own().ids = std::hash<std::string>()(std::accumulate(ids.begin(), ids.end(), std::string()));
  own().fails = fails;
  own().size = size;
  for (int other = 0; other < kMostMembers; ++other) {  // of any two, the later one sees the other
    const Slot& slot = slots_[other];
    const std::string two = "member " + std::to_string(rank_) + " and member " + std::to_string(other);
    if (slot.size != 0 && slot.size != size)
      breach(two + " name different sizes: " + std::to_string(size) + " and " + std::to_string(slot.size));
    if (slot.size != 0 && slot.ids != own().ids) breach(two + " bring different ids");
  }
  if (std::ranges::all_of(members(), [](const Slot& slot) { return slot.size != 0; })) unlink(name_.c_str());
}

Group::~Group() {
  unlink(name_.c_str());
  munmap(slots_, kSlotBytes);
  close(file_);
}

bool Group::is_ready() const {
  const std::size_t windows = own().windows;
  return std::ranges::any_of(members(), [](const Slot& slot) { return slot.aborted.load(); }) ||
         std::ranges::all_of(members(), [windows](const Slot& slot) {
           return slot.size != 0 && !slot.fails && slot.windows >= windows;
         });
}

bool Group::shares_gpu() const {
  std::set<int> seen;
  return std::ranges::any_of(members(),
                             [&](const Slot& slot) { return slot.size != 0 && !seen.insert(slot.bus).second; });
}

int Group::ask_for_window(std::size_t bytes) {
  const std::size_t number = own().windows;
  if (number == kMostWindows) {
    breach("more windows than the fake knows");
    return 0;
  }
  own().window_bytes[number] = bytes;
  ++own().windows;
  for (int other = 0; other < size; ++other) {
    const Slot& slot = slots_[other];
    if (slot.windows > number && slot.window_bytes[number] != bytes)
      breach("member " + std::to_string(rank_) + " makes a window of " + std::to_string(bytes) + " bytes, member " +
             std::to_string(other) + " one of " + std::to_string(slot.window_bytes[number]));
  }
  return static_cast<int>(number) + 1;
}

// As on a GPU whose multiprocessors are taken: until something ends there, or the own communicator is aborted.
void Group::take_room(int device) const {
  for (;;) {
    {
      const std::lock_guard lock(world().mutex);
      int& running = world().running[device];
      if (world().room == 0 || running < world().room || own().aborted) {
        ++running;
        return;
      }
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

// The pieces of work, then what they read. Not once the own communicator is aborted.
bool Group::lay_down(int device, const Call& call, std::uint64_t round) {
  const std::lock_guard lock(mutex);
  if (own().aborted) return false;
  for (const Work& work : call) {
    if (work.reads > 0 && fake_cuda_owns(device, work.input, work.reads) == 0)
      breach(std::string(work.kind) + " reads memory that was given back");
    if (work.writes > 0 && fake_cuda_owns(device, work.output, work.writes) == 0)
      breach(std::string(work.kind) + " writes memory that was given back");
  }
  off_t at = place_of(rank_, round);
  const auto put = [&](const void* bytes, std::size_t n) { at += whole(pwrite(file_, bytes, n, at), n); };
  const std::size_t pieces = call.size();
  put(&pieces, sizeof pieces);
  put(call.data(), pieces * sizeof(Work));
  for (const Work& work : call) put(work.input, work.reads);
  own().round = round;
  return true;
}

Call Group::read(int rank, std::uint64_t round, std::vector<std::vector<char>>& inputs) const {
  off_t at = place_of(rank, round);
  const auto get = [&](void* bytes, std::size_t n) { at += whole(pread(file_, bytes, n, at), n); };
  std::size_t pieces = 0;
  get(&pieces, sizeof pieces);
  Call call(pieces);
  get(call.data(), pieces * sizeof(Work));
  for (Work& work : call) {
    std::vector<char>& input = inputs.emplace_back(work.reads);
    get(input.data(), input.size());
    work.input = input.data();
  }
  return call;
}

void Group::run(int device, const Call& call) {
  struct Room {
    int device;
    ~Room() {
      const std::lock_guard lock(world().mutex);
      --world().running[device];
    }
  };
  take_room(device);
  const Room room{device};
  const std::uint64_t round = own().round + 1;
  if (!lay_down(device, call, round)) return;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!std::ranges::all_of(members(), [round](const Slot& slot) { return slot.round >= round; })) {
    if (own().aborted) return;
    if (std::chrono::steady_clock::now() > end) return breach("a member waits for the others, and nobody aborts it");
    std::this_thread::sleep_for(kBetweenLooks);
  }
  const std::lock_guard lock(mutex);
  if (own().aborted) return;
  std::vector<std::vector<char>> inputs;
  std::vector<Call> calls;
  for (int rank = 0; rank < size; ++rank) calls.push_back(read(rank, round, inputs));
  carry_out(calls, rank_);
}

}  // namespace fake_nccl
