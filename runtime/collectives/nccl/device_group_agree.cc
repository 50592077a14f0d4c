// What the members of a group agree on before their first call, and again where their communicator is of no use.
#include <algorithm>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/collectives/hierarchical_backend.h"
#include "runtime/collectives/nccl/device_group.h"

namespace hvd::collectives::nccl {

Result<std::unique_ptr<DeviceGroup>> DeviceGroup::agree(const DeviceOptions& options, cuda::Devices& devices,
                                                        int device, cuda::StagedCalls& host, Listener listener) {
  std::unique_ptr<DeviceGroup> group(new DeviceGroup(options, devices, host, std::move(listener)));
  group->own_ = group->own_facts(device);
  HVD_ASSIGN_OR_RETURN(group->why_not_, group->exchange(group->own_));
  if (group->why_not_.empty()) HVD_RETURN_IF_ERROR(group->connect());
  if (group->why_not_.empty()) HVD_RETURN_IF_ERROR(group->connect_hosts());
  return group;
}

MemberFacts DeviceGroup::own_facts(int device) {
  MemberFacts facts;
  if (device == kCpuDevice) {
    facts.refuse(Status::precondition("it has joined, and gives zeros from the host"));
    return facts;
  }
  if (options_.tls && std::ranges::adjacent_find(options_.hosts, std::not_equal_to<>()) != options_.hosts.end()) {
    facts.refuse(Status::precondition("TLS is on, and what NCCL sends from host to host is not encrypted"));
    return facts;
  }
  auto opened = host_.stream_on(device);
  auto library = Library::load(options_.library);
  if (opened.is_ok()) {
    facts.gpu = opened.value()->device()->uuid();
    facts.bus = opened.value()->device()->bus();
    facts.capability = opened.value()->device()->capability();
    facts.sees = opened.value()->device()->driver().devices();
  }
  if (!opened.is_ok() || !library.is_ok()) {
    refuse(facts, opened.is_ok() ? library.status() : opened.status());
    return facts;
  }
  stream_ = std::move(opened).value();
  library_ = std::move(library).value();
  const auto kernels = stream_->device()->kernels();
  if (kernels.is_ok()) kernels_ = kernels.value();
  if (!kernels.is_ok()) HVD_LOG(kDebug, "no kernels of our own on GPUs: ", kernels.status().message());
  facts.has_kernels = kernels.is_ok() ? 1 : 0;
  facts.can = 1;
  facts.version = library_->version();
  facts.shares_gpu = options_.shares_gpu ? 1 : 0;
  facts.registers = options_.registers ? 1 : 0;
  return facts;
}

// What all say, judged alike by all.
Result<std::string> DeviceGroup::exchange(const MemberFacts& own) {
  HVD_ASSIGN_OR_RETURN(const std::vector<MemberFacts> all, gather(own));
  all_have_kernels_ = std::ranges::all_of(all, [](const MemberFacts& member) { return member.has_kernels != 0; });
  all_register_ = std::ranges::all_of(all, [](const MemberFacts& member) { return member.registers != 0; });
  std::string why_not = why_no_communicator(all, options_.ranks, options_.hosts);
  why_no_float8_ = why_no_float8(all, options_.ranks);
  // Where NCCL takes them together, they mean it.
  shared_ = why_not.empty() ? "" : shared_gpus(all, options_.ranks, options_.hosts);
  return why_not;
}

UniqueId DeviceGroup::make_id(MemberFacts& facts) {
  UniqueId id{};
  const cuda::Device::Scope scope(*stream_->device());
  const Status made = library_->check(library_->calls().unique_id(&id), "ncclGetUniqueId", nullptr);
  if (!made.is_ok()) refuse(facts, made);
  return id;
}

// What NCCL says differs from member to member, and only one of them is quoted to all.
void DeviceGroup::refuse(MemberFacts& facts, const Status& why) const {
  const bool fits = facts.refuse(why);
  if (library_ != nullptr || !fits) listener_.refuses(why.message());
}

// Some members make ids, which travel on the ranks' own connections.
Status DeviceGroup::connect() {
  const int apart = library_->calls().init_scalable != nullptr ? options_.ranks_per_id : options_.set_size();
  MemberFacts facts = own_;
  const UniqueId own = options_.set_rank % apart == 0 ? make_id(facts) : UniqueId{};
  HVD_ASSIGN_OR_RETURN(const std::vector<UniqueId> all, gather(own));
  std::vector<UniqueId> ids;
  for (std::size_t i = 0; i < all.size(); i += static_cast<std::size_t>(apart)) ids.push_back(all[i]);
  HVD_ASSIGN_OR_RETURN(why_not_, exchange(facts));
  if (!why_not_.empty()) return Status::ok();
  HVD_ASSIGN_OR_RETURN(
      why_not_, open(communicator_, std::move(ids), {options_.set_size(), options_.set_rank, options_.call_limit}));
  return Status::ok();
}

// The members of each host have a communicator of their own, for which the first of them makes the id. Where one host
// has none, all do without.
Status DeviceGroup::connect_hosts() {
  if (options_.by_host == nullptr) return Status::ok();
  const HostGroups& groups = options_.by_host->groups();
  MemberFacts facts = own_;
  const UniqueId own = groups.local_rank == 0 ? make_id(facts) : UniqueId{};
  HVD_ASSIGN_OR_RETURN(const std::vector<UniqueId> all, gather(own));
  HVD_ASSIGN_OR_RETURN(std::string why_not, exchange(facts));
  const auto first = static_cast<std::size_t>(groups.hosts[static_cast<std::size_t>(groups.host)].front());
  if (why_not.empty()) {
    HVD_ASSIGN_OR_RETURN(why_not,
                         open(of_host_, {all[first]}, {groups.local_size(), groups.local_rank, options_.call_limit}));
  }
  if (why_not.empty()) return Status::ok();
  of_host_.reset();
  if (options_.set_rank == 0) {
    HVD_LOG(kWarning, "HOROVOD_HIERARCHICAL_ALLREDUCE: tensors on GPUs are not reduced host by host: ", why_not);
  }
  return Status::ok();
}

// Whether everybody's communicator came about is agreed on as well: nobody is left with one alone.
Result<std::string> DeviceGroup::open(std::shared_ptr<Communicator>& made, std::vector<UniqueId> ids,
                                      const Communicator::Place& place) {
  MemberFacts facts = own_;
  auto begun = Communicator::begin(library_, stream_, std::move(ids), place);
  Status status = begun.status();
  if (status.is_ok()) {
    made = std::move(begun).value();
    listener_.begun(made);
    status = made->wait_for_members(options_.start_limit);
  }
  if (!status.is_ok()) refuse(facts, status);
  HVD_ASSIGN_OR_RETURN(std::string why_not, exchange(facts));
  if (!why_not.empty() && made != nullptr) made->abort();
  return why_not;
}

}  // namespace hvd::collectives::nccl
