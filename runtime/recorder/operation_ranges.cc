#include "runtime/recorder/operation_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>

namespace hvd::recorder {

namespace {

// NVTX looks for a profiler at its first call, and the pointers to functions that it writes then are plain memory,
// which every later call reads: so all wait here for that call.
void look_for_profiler() { [[maybe_unused]] static const bool has_looked = (nvtxInitialize(nullptr), true); }

// "HorovodAllreduce".
std::string domain_name(OpType op) {
  std::string name(op_type_name(op));
  name.front() = static_cast<char>(name.front() - 'a' + 'A');
  return "Horovod" + name;
}

}  // namespace

OperationRanges::OperationRanges(bool wanted) {
  if (!wanted) return;
  look_for_profiler();
  for (std::size_t op = 0; op < domains_.size(); ++op) {
    domains_[op] = nvtxDomainCreateA(domain_name(static_cast<OpType>(op)).c_str());
  }
  // Null: there is no profiler, or one that knows no domains.
  is_active_ = std::ranges::none_of(domains_, [](nvtxDomainHandle_t domain) { return domain == nullptr; });
}

OperationRanges::~OperationRanges() {
  for (nvtxDomainHandle_t domain : domains_) {
    if (domain != nullptr) nvtxDomainDestroy(domain);
  }
}

std::uint64_t OperationRanges::start(OpType op, const std::string& name, std::size_t bytes) const {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  event.payload.ullValue = bytes;
  // Not a registered string: profilers keep those until the end, and a program may make a name for each call.
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name.c_str();
  return nvtxDomainRangeStartEx(domains_.at(static_cast<std::size_t>(op)), &event);
}

void OperationRanges::end(OpType op, std::uint64_t range) const {
  nvtxDomainRangeEnd(domains_.at(static_cast<std::size_t>(op)), range);
}

}  // namespace hvd::recorder
