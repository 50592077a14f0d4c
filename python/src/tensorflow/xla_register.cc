// The custom calls that programs may make. A collective's last argument and last result are the token that orders
// calls, an int32 scalar that is handed on; the others are its tensors. A handler blocks until its operations are done.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <utility>

#include "horovod/session.h"
#include "python/src/published_session.h"
#include "python/src/tensorflow/c_api.h"
#include "python/src/tensorflow/query_kernel.h"
#include "python/src/xla/call.h"
#include "python/src/xla/collective.h"
#include "python/src/xla/ffi.h"
#include "runtime/base/status.h"

namespace hvd::tensorflow {

namespace {

namespace ffi = xla::ffi;
using python::published_session;
using xla::XlaCall;

Status hand_on_token(const XlaCall& call) {
  HVD_ASSIGN_OR_RETURN(const TensorRef before, call.argument(call.arguments() - 1));
  HVD_ASSIGN_OR_RETURN(const TensorRef after, call.result(call.results() - 1));
  *static_cast<std::int32_t*>(after.data) = *static_cast<const std::int32_t*>(before.data);
  return Status::ok();
}

template <OpType kOp, bool kGrouped>
Status collective(const XlaCall& call) {
  HVD_ASSIGN_OR_RETURN(const std::int32_t equal_rows, call.integer("equal_rows"));
  std::deque<xla::ResultPlace> results;
  HVD_ASSIGN_OR_RETURN(auto operations, xla::read_operations(call, kOp, ',', kCpuDevice, results));
  HVD_ASSIGN_OR_RETURN(const auto session, published_session());
  const xla::GroupSizes groups(kGrouped ? 1 : 0, operations.size());
  xla::Handles handles;
  Status submitted = xla::submit(*session, std::move(operations), groups, handles);
  HVD_RETURN_IF_ERROR(
      xla::finish(handles, results, {}, std::move(submitted), equal_rows != 0, "use jit_compile=False").status);
  return hand_on_token(call);
}

Status join(const XlaCall& call) {
  HVD_ASSIGN_OR_RETURN(const TensorRef last_rank, call.result(0));
  HVD_ASSIGN_OR_RETURN(const auto session, published_session());
  Operation operation;
  operation.op = OpType::kJoin;
  operation.name = "join.noname";
  HVD_ASSIGN_OR_RETURN(const HandlePtr handle, session->enqueue(std::move(operation)));
  xla::wait_until_done(handle);
  HVD_RETURN_IF_ERROR(handle->status());
  *static_cast<std::int32_t*>(last_rank.data) = static_cast<std::int32_t>(handle->value());
  return hand_on_token(call);
}

template <QueryAnswer kAnswer>
Status query(const XlaCall& call) {
  HVD_ASSIGN_OR_RETURN(const std::int32_t process_set, call.integer("process_set_id"));
  HVD_ASSIGN_OR_RETURN(const std::int32_t value, kAnswer(process_set));
  HVD_ASSIGN_OR_RETURN(const TensorRef result, call.result(0));
  *static_cast<std::int32_t*>(result.data) = value;
  return Status::ok();
}

template <OpType kOp, bool kGrouped = false>
constexpr ffi::Handler* kCollective = &xla::xla_handler<&collective<kOp, kGrouped>>;
template <QueryAnswer kAnswer>
constexpr ffi::Handler* kQuery = &xla::xla_handler<&query<kAnswer>>;

struct XlaTarget {
  const char* name;  // in the program
  ffi::Handler* handler;
};

constexpr std::array kTargets{
    XlaTarget{"horovod_allreduce", kCollective<OpType::kAllreduce>},
    XlaTarget{"horovod_grouped_allreduce", kCollective<OpType::kAllreduce, true>},
    XlaTarget{"horovod_allgather", kCollective<OpType::kAllgather>},
    XlaTarget{"horovod_grouped_allgather", kCollective<OpType::kAllgather, true>},
    XlaTarget{"horovod_broadcast", kCollective<OpType::kBroadcast>},
    XlaTarget{"horovod_alltoall", kCollective<OpType::kAlltoall>},
    XlaTarget{"horovod_reducescatter", kCollective<OpType::kReducescatter>},
    XlaTarget{"horovod_grouped_reducescatter", kCollective<OpType::kReducescatter, true>},
    XlaTarget{"horovod_join", &xla::xla_handler<&join>},
    XlaTarget{"horovod_size", kQuery<&answer_size>},
    XlaTarget{"horovod_process_set_included", kQuery<&answer_process_set_included>},
    XlaTarget{"horovod_local_size", kQuery<&answer_local_size>},
    XlaTarget{"horovod_rank", kQuery<&answer_rank>},
    XlaTarget{"horovod_local_rank", kQuery<&answer_local_rank>},
};

constexpr const char* kGetApi = "_ZN3xla3ffi12GetXlaFfiApiEv";  // xla::ffi::GetXlaFfiApi()
constexpr const char* kPlatform = "Host";                       // XLA for CPUs

Status register_target(const ffi::Api& api, const XlaTarget& target) {
  ffi::RegisterArgs arguments{};
  arguments.struct_size = sizeof(arguments);
  arguments.name = {target.name, std::strlen(target.name)};
  arguments.platform = {kPlatform, std::strlen(kPlatform)};
  arguments.bundle.execute = target.handler;
  ffi::Error* const error = api.handler_register(&arguments);
  if (error == nullptr) return Status::ok();
  return Status::internal(xla::take_message(api, error)).annotate(target.name);
}

Status register_xla() {
  void* const function = find_tf_symbol(kGetApi);
  if (function == nullptr) return Status::precondition("its XLA has no xla::ffi::GetXlaFfiApi()");
  const ffi::Api* const api = reinterpret_cast<const ffi::Api* (*)()>(function)();
  const auto version = std::to_string(api->version.major) + "." + std::to_string(api->version.minor);
  if (api->struct_size < sizeof(ffi::Api) || api->version.major != ffi::kMajor || api->version.minor < ffi::kMinor) {
    return Status::precondition("its XLA has version " + version +
                                " of the interface for custom calls, not 0.1 or later");
  }
  for (const XlaTarget& target : kTargets) {
    HVD_RETURN_IF_ERROR(register_target(*api, target));
  }
  return Status::ok();
}

}  // namespace

}  // namespace hvd::tensorflow

// Makes the collectives known to the XLA of the TensorFlow that is loaded; once, at the first function that is
// compiled. Null when all went well, else what went wrong.
extern "C" __attribute__((visibility("default"))) const char* hvd_tensorflow_register_xla() {
  static const std::string problem = hvd::tensorflow::register_xla().message();
  return problem.empty() ? nullptr : problem.c_str();
}
