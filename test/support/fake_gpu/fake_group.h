#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The members of a communicator of the fake NCCL, which are threads, processes, or both. Of libfake_nccl alone.
namespace fake_nccl {

constexpr int kMostMembers = 64;
constexpr std::size_t kMostWindows = 32;

using Scalar = std::array<std::byte, 8>;  // in the type of the elements

// Where a tensor lies in memory that the communicator knows.
struct Registered {
  bool is_registered = false;
  int window = 0;  // which one; 0: the member registered it alone
  std::size_t offset = 0;
};

struct Work {  // goes to other processes as it is
  char kind[16];
  const void* input;
  void* output;
  std::size_t count;
  int type;
  int reduction;
  int root;               // or peer
  Scalar factor{};        // of a reduction that the caller made
  std::size_t reads = 0;  // bytes
  std::size_t writes = 0;
  Registered input_in{};
  Registered output_in{};
  bool is(std::string_view name) const { return name == kind; }
  bool reduces() const { return is("all_reduce") || is("reduce") || is("reduce_scatter"); }
  bool has_root() const { return is("broadcast") || is("reduce"); }
  bool is_collective() const { return !is("send") && !is("receive"); }
};
using Call = std::vector<Work>;  // one, or those of a group

inline std::size_t size_of(int type) {
  return type <= 1 || type == 10 || type == 11 ? 1 : type == 2 || type == 7 ? 4 : type == 6 || type == 9 ? 2 : 8;
}

// What a member says of itself; nobody else writes it. All zero before it has come.
struct Slot {
  std::atomic<int> size;  // of the communicator; the last that is written when it comes
  std::atomic<int> bus;   // of its GPU
  std::atomic<std::size_t> ids;
  std::atomic<bool> fails;    // the others never come to an end by themselves
  std::atomic<bool> aborted;  // it is over for the others only when they abort, too
  // Windows are made by all members together: how many it has asked for, and of which sizes.
  std::atomic<std::size_t> windows;
  std::array<std::atomic<std::size_t>, kMostWindows> window_bytes;
  std::atomic<std::uint64_t> round;  // calls that it has laid down
};

// One member's hold on the file in the temporary folder, named by the communicator's id, where the members meet. There
// is no lock in it: one that dies leaves nothing that the others need for their abort. The last member that comes takes
// the name away, and so does each at its end, as some may never come.
class Group {
 public:
  // The others see it from now on.
  Group(const std::vector<std::string>& ids, int size, int rank, int bus, bool fails);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Whether all members have come, and to the windows that this one has asked for.
  bool is_ready() const;
  // Whether two members are on one GPU, which has a place on the bus.
  bool shares_gpu() const;
  // Its number, from 1 on.
  int ask_for_window(std::size_t bytes);
  // Requires: `mutex`. From then on nothing touches the tensors.
  void abort() { own().aborted = true; }
  // In a stream: waits there for the others.
  void run(int device, const Call& call);

  const int size;
  std::mutex mutex;  // of what this process knows of the member, and of its tensors until it has aborted

 private:
  std::span<Slot> members() const { return {slots_, static_cast<std::size_t>(size)}; }
  Slot& own() const { return slots_[rank_]; }
  void take_room(int device) const;
  bool lay_down(int device, const Call& call, std::uint64_t round);
  Call read(int rank, std::uint64_t round, std::vector<std::vector<char>>& inputs) const;

  const int rank_;
  const std::string name_;
  int file_;
  Slot* slots_;
};

// Empty where NCCL would do what these calls say, one of each member; else who differs, in words.
std::string why_calls_differ(const std::vector<Call>& calls);
// What member `rank` gets in a round, with the calls of all; their inputs are copies. Where they differ nobody gets
// anything.
void carry_out(const std::vector<Call>& calls, int rank);

}  // namespace fake_nccl
