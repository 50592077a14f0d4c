#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/collectives/cuda/staged_calls.h"
#include "runtime/collectives/nccl/agreement.h"
#include "runtime/collectives/nccl/communicator.h"

namespace hvd::collectives::nccl {

// How the backend of a set is set up; the same on all members but for `library`.
struct DeviceOptions {
  std::string library;  // file of NCCL; empty: searched for
  Millis limit{30000};  // until all members have come to a new communicator
  std::vector<int> ranks;
  std::vector<int> hosts;  // of the ranks
  int set_rank = 0;
  bool deterministic = false;  // the same bits in every run
  bool batch_copies = true;    // the tensors of a list with one kernel
  bool registers = true;       // lists are packed in memory that NCCL reaches directly
  bool shares_gpu = false;     // NCCL may take several ranks on a GPU
  int ranks_per_id = 256;      // of NCCL; each is served by one rank
  int set_size() const { return static_cast<int>(ranks.size()); }
};

// The members of a set on one combination of GPUs: whether they use NCCL together, which they find out in their first
// call, and how their calls run there. Confined to the set's lane, but for abort().
class DeviceGroup {
 public:
  // Exchanges with the other members over `host`. A failure is one of the host's.
  static Result<std::unique_ptr<DeviceGroup>> agree(const DeviceOptions& options, cuda::Devices& devices, int device,
                                                    cuda::StagedCalls& host, const std::atomic<bool>& cancelled);

  // The members that share a GPU, as shared_gpus() says it.
  const std::string& shared_gpus_text() const { return shared_; }
  // Empty when the call runs on NCCL; else why not. The same on all members.
  std::string why_not(const CollectiveCall& call) const;
  // `owner`: of what is watched. `has_begun`: called on hvd-gpu, soon after the tensors were ready, if the collective
  // takes longer than a moment.
  void start(const void* owner, const CollectiveCall& call, Completion done, std::function<void()> has_begun);
  std::shared_ptr<Communicator> communicator() const { return communicator_; }

 private:
  DeviceGroup(const DeviceOptions& options, cuda::Devices& devices, cuda::StagedCalls& host)
      : options_(options), devices_(devices), host_(host) {}
  MemberFacts own_facts(int device);
  Status connect(const MemberFacts& own, const std::atomic<bool>& cancelled);
  Result<std::vector<UniqueId>> exchange_ids(MemberFacts& facts);
  Result<std::string> exchange(const MemberFacts& own);
  // What `own` is on each member, by set rank.
  template <typename T>
  Result<std::vector<T>> gather(const T& own);
  bool may_register(const CollectiveCall& call) const;
  // Whether all members have memory to pack a list of an allreduce in. The same on all.
  Result<bool> all_have_room(const CollectiveCall& call, std::size_t bytes);
  Status grow_registered(std::size_t bytes);
  // The event comes when the tensors are ready.
  Result<cuda::EventPtr> enqueue(const CollectiveCall& call);
  Status enqueue_list(const CollectiveCall& call);
  Status enqueue_packed(const CollectiveCall& call);
  Status enqueue_in_place(const CollectiveCall& call);
  Status copy(std::span<const cuda::Copy> copies, const cuda::ElementScaling& scaling);

  const DeviceOptions& options_;
  cuda::Devices& devices_;
  cuda::StagedCalls& host_;
  std::shared_ptr<const Library> library_;
  std::shared_ptr<cuda::Stream> stream_;
  std::shared_ptr<Communicator> communicator_;
  std::string why_not_;
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
};

}  // namespace hvd::collectives::nccl
