#include "python/src/tensorflow/query_kernel.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "python/src/published_session.h"
#include "python/src/tensorflow/attributes.h"
#include "python/src/tensorflow/types.h"
#include "runtime/base/status.h"

namespace hvd::tensorflow {

namespace {

using python::published_session;

// Process set codes, as values of HorovodProcessSetIncluded.
constexpr std::int32_t kNotInitialised = -1;
constexpr std::int32_t kUnknownSet = -3;

Result<std::int32_t> of_topology(int JobTopology::* field) {
  HVD_ASSIGN_OR_RETURN(const auto session, published_session());
  return session->topology().*field;
}

void answer(TF_OpKernelContext* context, const Result<std::int32_t>& value) {
  TfStatus status;
  if (!value.is_ok()) {
    tf().SetStatus(status.get(), to_tf(value.status().code()), value.status().message().c_str());
    tf().OpKernelContext_Failure(context, status.get());
    return;
  }
  TF_Tensor* const output =
      tf().AllocateOutput(context, 0, TfType::kInt32, nullptr, 0, sizeof(std::int32_t), status.get());
  if (!status.is_ok()) {
    tf().OpKernelContext_Failure(context, status.get());
    return;
  }
  *static_cast<std::int32_t*>(tf().TensorData(output)) = value.value();
  tf().DeleteTensor(output);
}

template <QueryAnswer kAnswer>
void compute(void* kernel, TF_OpKernelContext* context) {
  const std::int32_t process_set = kernel != nullptr ? *static_cast<const std::int32_t*>(kernel) : kGlobalProcessSet;
  try {
    answer(context, kAnswer(process_set));
  } catch (const std::exception& error) {
    answer(context, Status::internal(error.what()));
  }
}

void* create_with_set(TF_OpKernelConstruction* construction) {
  const auto process_set = read_process_set(construction);
  return process_set ? new std::int32_t(*process_set) : nullptr;
}

void* create_plain(TF_OpKernelConstruction*) { return nullptr; }

void destroy_query(void* kernel) { delete static_cast<std::int32_t*>(kernel); }

}  // namespace

Result<std::int32_t> answer_size(std::int32_t process_set) {
  HVD_ASSIGN_OR_RETURN(const auto session, published_session());
  if (process_set == kGlobalProcessSet) return session->topology().size;
  const auto sets = session->process_sets();
  const auto found = sets.find(process_set);
  if (found == sets.end()) {
    return Status::invalid_argument("size: process set " + std::to_string(process_set) + " does not exist");
  }
  return static_cast<std::int32_t>(found->second.size());
}

Result<std::int32_t> answer_process_set_included(std::int32_t process_set) {
  const auto session = published_session();
  if (!session.is_ok()) return kNotInitialised;
  const auto sets = session.value()->process_sets();
  const auto found = sets.find(process_set);
  if (found == sets.end()) return kUnknownSet;
  const int own = session.value()->topology().rank;
  return std::find(found->second.begin(), found->second.end(), own) != found->second.end() ? 1 : 0;
}

Result<std::int32_t> answer_local_size(std::int32_t) { return of_topology(&JobTopology::local_size); }
Result<std::int32_t> answer_rank(std::int32_t) { return of_topology(&JobTopology::rank); }
Result<std::int32_t> answer_local_rank(std::int32_t) { return of_topology(&JobTopology::local_rank); }

QueryFunctions size_kernel() { return {&create_with_set, &compute<&answer_size>, &destroy_query}; }
QueryFunctions process_set_included_kernel() {
  return {&create_with_set, &compute<&answer_process_set_included>, &destroy_query};
}
QueryFunctions local_size_kernel() { return {&create_plain, &compute<&answer_local_size>, &destroy_query}; }
QueryFunctions rank_kernel() { return {&create_plain, &compute<&answer_rank>, &destroy_query}; }
QueryFunctions local_rank_kernel() { return {&create_plain, &compute<&answer_local_rank>, &destroy_query}; }

}  // namespace hvd::tensorflow
