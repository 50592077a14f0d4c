#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/collectives/backend.h"
#include "runtime/collectives/cuda/stream.h"
#include "runtime/collectives/nccl/comm.h"
#include "runtime/collectives/nccl/library.h"

namespace hvd::collectives::nccl {

// What a communicator does with calls of these traits: empty, or why it does not, in words. Pure. `can_scale`: what
// NCCL does not scale, the caller does.
std::string why_not(const CollectiveCall& call, bool can_scale);
// Whether NCCL scales what the call scales.
bool scales(const CollectiveCall& call);

// A non-blocking communicator of the members of a set on one combination of GPUs, working in the set's stream there.
// Calls come from the set's lane, in the order of all members; abort() and trouble() from any thread. Every wait ends
// with abort() or a deadline.
class Communicator {
 public:
  struct Place {
    int size;
    int rank;
    Millis call_limit;  // for what NCCL does on the host for one call: in the first ones it connects the members
  };
  // Begins to meet the other members. `ids`: the same on all of them; several, made by members on several hosts, share
  // out the work of bringing all together. Requires: several only where NCCL has Calls::init_scalable.
  static Result<std::shared_ptr<Communicator>> begin(std::shared_ptr<const Library> library,
                                                     std::shared_ptr<cuda::Stream> stream, std::vector<UniqueId> ids,
                                                     const Place& place);
  // Waits until all members have come, for `limit` at most. Before anything else is done with it.
  Status wait_for_members(Millis limit) { return settle("ncclCommInitRankConfig", Deadline::after(limit)); }
  // Ends with the others, or alone after an abort, for which it waits a little.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Puts a call on one piece of device memory into the stream. Requires: why_not() is empty; no list.
  Status start(const CollectiveCall& call);
  // communicator_memory.cc. Memory of NCCL's own, for what all members reduce: null where it has none, or is told to
  // leave it. Freed with this object.
  void* allocate(std::size_t bytes);
  // Lets NCCL reach it directly, also that of other members where it can. All members do so at the same place in the
  // order of calls, with the same size, and use the same offsets: they begin it, and end it where all have begun. After
  // an error of any of them nobody may use the communicator for more than abort().
  Status begin_registration(void* memory, std::size_t bytes);
  Status end_registration(void* memory, std::size_t bytes);

  // An error that came up since, such as the loss of a peer.
  Status trouble();
  // Comm::abort().
  void abort() { comm_->abort(); }
  // After start() has failed, for the event behind it: where NCCL was still at work on the host, aborts it, and `end`
  // comes no earlier than NCCL has ended (Comm::hold_until_over()).
  void abort_unsettled(const cuda::EventPtr& end);

 private:
  Communicator(std::shared_ptr<const Library> library, std::shared_ptr<cuda::Stream> stream, const Place& place)
      : library_(std::move(library)),
        stream_(std::move(stream)),
        place_(place),
        comm_(std::make_shared<Comm>(library_, stream_)) {}
  // OK where NCCL may be called. Requires: comm_'s mutex is held.
  Status check_alive(const std::string& what) const;
  // Waits while NCCL says that it is in progress.
  Status settle(const std::string& what, Deadline deadline);
  int issue(const CollectiveCall& call);
  int reduce_with(const CollectiveCall& call, int reduction);
  int scatter_parts(const CollectiveCall& call, int reduction);
  int reduction_of(const CollectiveCall& call, int& reduction);
  int gather(const CollectiveCall& call);
  int exchange(const CollectiveCall& call);
  void end();
  bool end_registrations();
  void free_all(bool is_idle);

  const std::shared_ptr<const Library> library_;
  const std::shared_ptr<cuda::Stream> stream_;
  const Place place_;
  const std::shared_ptr<Comm> comm_;
  static constexpr int kNone = -1;
  int own_reduction_ = kNone;  // made for the call that is being started
  bool is_unsettled_ = false;  // a call was begun, and NCCL has not said that it is in the stream
};

}  // namespace hvd::collectives::nccl
