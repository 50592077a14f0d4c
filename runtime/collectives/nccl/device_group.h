#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/collectives/cuda/staged_calls.h"
#include "runtime/collectives/hierarchical_backend.h"
#include "runtime/collectives/nccl/agreement.h"
#include "runtime/collectives/nccl/communicator.h"

namespace hvd::collectives::nccl {

// How the backend of a set is set up; the same on all members but for `library`.
struct DeviceOptions {
  std::string library;  // file of NCCL; empty: searched for
  Millis start_limit;   // until all members have come to a new communicator
  Millis call_limit;    // for what NCCL does on the host for one call
  std::vector<int> ranks;
  std::vector<int> hosts;  // of the ranks
  int set_rank = 0;
  bool deterministic = false;  // the same bits in every run
  bool batch_copies = true;    // the tensors of a list with one kernel
  bool registers = true;       // lists are packed in memory that NCCL reaches directly
  bool shares_gpu = false;     // NCCL may take several ranks on a GPU
  int ranks_per_id = 256;      // of NCCL; each is served by one rank
  bool tls = false;            // nothing may go from host to host in the clear
  // Allreduces go host by host, by its groups; null: they do not. Outlives the backend.
  const HierarchicalBackend* by_host = nullptr;
  int set_size() const { return static_cast<int>(ranks.size()); }
};

// The members of a set on one combination of GPUs: whether they use NCCL together, which they find out in their first
// call, and how their calls run there. Confined to the set's lane, but for abort().
class DeviceGroup {
 public:
  struct Listener {
    // Gets to know each communicator before it waits for its members, to abort it.
    std::function<void(const std::shared_ptr<Communicator>&)> begun;
    // Why this member cannot use NCCL, in full, where the others get less of it.
    std::function<void(const std::string&)> refuses;
  };
  // Exchanges with the other members over `host`. A failure is one of the host's.
  static Result<std::unique_ptr<DeviceGroup>> agree(const DeviceOptions& options, cuda::Devices& devices, int device,
                                                    cuda::StagedCalls& host, Listener listener);

  // The members that share a GPU, as shared_gpus() says it.
  const std::string& shared_gpus_text() const { return shared_; }
  // Empty when the call runs on NCCL; else why not. The same on all members.
  std::string why_not(const CollectiveCall& call) const;
  // `owner`: of what is watched. `has_begun`: called on hvd-gpu, soon after the tensors were ready, if the collective
  // takes longer than a moment.
  void start(const void* owner, const CollectiveCall& call, Completion done, std::function<void()> has_begun);
  // Whether the call meets other members on the host, too, and so holds up the lane.
  bool goes_by_host(const CollectiveCall& call) const { return of_host_ != nullptr && call.op == OpType::kAllreduce; }

 private:
  DeviceGroup(const DeviceOptions& options, cuda::Devices& devices, cuda::StagedCalls& host, Listener listener)
      : options_(options), devices_(devices), host_(host), listener_(std::move(listener)) {}

  // device_group_agree.cc
  MemberFacts own_facts(int device);
  Result<std::string> exchange(const MemberFacts& own);
  UniqueId make_id(MemberFacts& facts);
  void refuse(MemberFacts& facts, const Status& why) const;
  Status connect();
  Status connect_hosts();
  Result<std::string> open(std::shared_ptr<Communicator>& made, std::vector<UniqueId> ids,
                           const Communicator::Place& place);
  // What `own` is on each member, by set rank.
  template <typename T>
  Result<std::vector<T>> gather(const T& own) {
    std::vector<T> all(options_.ranks.size());
    CollectiveCall call;
    call.op = OpType::kAllgather;
    call.dtype = DataType::kUint8;
    call.input = &own;
    call.output = all.data();
    call.count = sizeof(T);
    call.rank_counts.assign(options_.ranks.size(), sizeof(T));
    HVD_RETURN_IF_ERROR(host_.run_on_host(call));
    return all;
  }

  // device_group_hosts.cc: an allreduce in one piece of device memory.
  struct HostPiece;
  Status reduce_by_host(const CollectiveCall& call);
  std::vector<HostPiece> host_pieces(const CollectiveCall& call) const;
  Status scatter_piece(const CollectiveCall& call, HostPiece& piece, std::byte* pinned);
  Status finish_piece(const CollectiveCall& call, const HostPiece& piece, std::byte* pinned);

  // device_group_lists.cc
  Status enqueue_list(const CollectiveCall& call);
  bool needs_no_peer(const CollectiveCall& call) const;
  Status enqueue_alone(const CollectiveCall& call);
  Status enqueue_packed(const CollectiveCall& call);
  bool may_register(const CollectiveCall& call) const;
  // Empty when all members have memory to pack the call's tensors in; else who has not. The same on all.
  Result<std::string> who_has_no_room(const CollectiveCall& call);
  Status grow_registered(std::size_t bytes);
  Result<bool> all_can(const Status& own);
  Status start_anew();

  // One piece of device memory.
  Status run(const CollectiveCall& call);
  // The event comes when the tensors are ready.
  Result<cuda::EventPtr> enqueue(const CollectiveCall& call);
  Status enqueue_scaled(const CollectiveCall& call);
  Status copy(std::span<const cuda::Copy> copies, const cuda::ElementScaling& scaling);

  const DeviceOptions& options_;
  cuda::Devices& devices_;
  cuda::StagedCalls& host_;
  const Listener listener_;
  MemberFacts own_;
  std::shared_ptr<const Library> library_;
  std::shared_ptr<cuda::Stream> stream_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<Communicator> of_host_;  // of the members on this host; null: allreduces do not go host by host
  std::string why_not_;
  std::string why_no_float8_;
  std::string shared_;
  const cuda::Kernels* kernels_ = nullptr;  // of the stream's device, where it has them
  bool all_have_kernels_ = false;
  bool all_register_ = false;
  // For lists of allreduces; the same on all members.
  void* registered_ = nullptr;  // the communicator's; the last piece
  std::size_t registered_bytes_ = 0;
  bool registered_grows_ = true;
  std::size_t room_ = 0;                     // all had as much other memory
  std::size_t no_room_ = std::string::npos;  // one had not as much
  std::string no_room_text_;
};

}  // namespace hvd::collectives::nccl
