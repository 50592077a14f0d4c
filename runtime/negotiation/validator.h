#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// The requests of one tensor that do not differ in anything that must agree, represented by the one of the lowest rank.
struct RequestClass {
  wire::Request representative;
};

// Whether two requests of one name may be in one class: everything that the checks compare is the same (not: rank, the
// first dimension of allgather and alltoall, the ordinal of a GPU).
bool same_class(const wire::Request& a, const wire::Request& b);

// Allreduce, adasum and barrier: joined ranks contribute zeros.
bool works_with_joined_ranks(OpType op);

struct ValidationContext {
  std::vector<int> joined;  // global ranks that take part only because they have joined
};

// What all ranks that submitted one name must agree on. Returns the message of the first check that fails, with both
// values and the ranks that gave them; nullopt when all is well.
// `classes` are ascending by representative rank. Requires: not empty. Pure.
std::optional<std::string> find_mismatch(const std::vector<RequestClass>& classes, const ValidationContext& context);

}  // namespace hvd::negotiation
