#include "runtime/negotiation/validator.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hvd::negotiation {
namespace {

using wire::Request;

bool on_gpu(const Request& r) { return r.device != kCpuDevice; }

// One rule: whom it concerns, when two requests agree, and how a request's value reads.
struct Rule {
  const char* kind;  // the words with which the message starts
  bool (*concerns)(OpType op);
  bool (*agree)(const Request& a, const Request& b);
  std::string (*value)(const Request& r);
};

bool any_op(OpType) { return true; }
bool has_fixed_shape(OpType op) {
  return op == OpType::kAllreduce || op == OpType::kAdasum || op == OpType::kBroadcast || op == OpType::kReducescatter;
}
bool has_reduction(OpType op) { return op == OpType::kAllreduce || op == OpType::kReducescatter; }
bool has_free_first_dim(OpType op) { return op == OpType::kAllgather || op == OpType::kAlltoall; }
bool has_root(OpType op) { return op == OpType::kBroadcast; }

bool same_but_first_dim(const Request& a, const Request& b) {
  return a.shape.size() == b.shape.size() &&
         (a.shape.empty() || std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1));
}

constexpr Rule kTypes{"Mismatched data types", any_op,
                      [](const Request& a, const Request& b) { return a.dtype == b.dtype; },
                      [](const Request& r) { return std::string(data_type_name(r.dtype)); }};
constexpr Rule kOperations{"Mismatched operations", any_op,
                           [](const Request& a, const Request& b) { return a.op == b.op; },
                           [](const Request& r) { return std::string(op_type_name(r.op)); }};
constexpr Rule kShapes{"Mismatched tensor shapes", has_fixed_shape,
                       [](const Request& a, const Request& b) { return a.shape == b.shape; },
                       [](const Request& r) { return to_string(r.shape); }};
constexpr Rule kFactors{"Mismatched factors", is_reduction,
                        [](const Request& a, const Request& b) { return same_factors(a, b); },
                        [](const Request& r) {
                          return "prescale_factor " + wire::factor_text(r.prescale) + ", postscale_factor " +
                                 wire::factor_text(r.postscale);
                        }};
constexpr Rule kReductions{"Mismatched reduction operations", has_reduction,
                           [](const Request& a, const Request& b) { return a.reduce_op == b.reduce_op; },
                           [](const Request& r) { return std::string(reduce_op_name(r.reduce_op)); }};
constexpr Rule kInnerShapes{"Mismatched tensor shapes (all dimensions but the first must agree)", has_free_first_dim,
                            same_but_first_dim, [](const Request& r) { return to_string(r.shape); }};
constexpr Rule kRoots{"Mismatched root ranks", has_root,
                      [](const Request& a, const Request& b) { return a.root_rank == b.root_rank; },
                      [](const Request& r) { return "root rank " + std::to_string(r.root_rank); }};
constexpr Rule kDevices{"Mismatched CPU/GPU device selection", any_op,
                        [](const Request& a, const Request& b) { return on_gpu(a) == on_gpu(b); },
                        [](const Request& r) { return std::string(on_gpu(r) ? "a GPU" : "the CPU"); }};
constexpr Rule kGroups{
    "Mismatched groups", any_op,
    [](const Request& a, const Request& b) { return a.group_key == b.group_key && a.group_size == b.group_size; },
    [](const Request& r) {
      return r.group_size == 0 ? std::string("no group")
                               : "a group of " + std::to_string(r.group_size) + " tensors" + " (key " +
                                     std::to_string(r.group_key) + ")";
    }};

std::string about(const Request& r) { return std::string(op_type_name(r.op)) + " \"" + r.name + "\""; }

using Classes = std::vector<RequestClass>;
using Mismatch = std::optional<std::string>;

Mismatch check_rule(const Rule& rule, const Classes& classes) {
  const Request& first = classes.front().representative;
  if (!rule.concerns(first.op)) return std::nullopt;
  for (const RequestClass& other : classes) {
    const Request& r = other.representative;
    if (rule.agree(first, r)) continue;
    return std::string(rule.kind) + " for " + about(first) + ": rank " + std::to_string(first.rank) + " gave " +
           rule.value(first) + ", rank " + std::to_string(r.rank) + " gave " + rule.value(r) + ".";
  }
  return std::nullopt;
}

Mismatch check_scalar(const Classes& classes) {
  for (const RequestClass& c : classes) {
    const Request& r = c.representative;
    if (!r.shape.empty()) continue;
    return "Tensor shapes for " + about(r) + ": rank " + std::to_string(r.rank) +
           " gave a tensor without dimensions; at least one is needed.";
  }
  return std::nullopt;
}

Mismatch check_joined(const Request& r, const ValidationContext& context) {
  if (context.joined.empty() || works_with_joined_ranks(r.op)) return std::nullopt;
  return "Operations: " + about(r) + " was submitted by rank " + std::to_string(r.rank) + " while rank " +
         std::to_string(context.joined.front()) +
         " has joined; only allreduce, adasum and barrier work with joined ranks.";
}

}  // namespace

bool works_with_joined_ranks(OpType op) {
  return op == OpType::kAllreduce || op == OpType::kAdasum || op == OpType::kBarrier;
}

bool same_class(const Request& a, const Request& b) {
  const bool shapes = has_free_first_dim(a.op) ? same_but_first_dim(a, b) : a.shape == b.shape;
  return shapes && a.op == b.op && a.dtype == b.dtype && a.reduce_op == b.reduce_op && same_factors(a, b) &&
         a.root_rank == b.root_rank && on_gpu(a) == on_gpu(b) && a.group_key == b.group_key &&
         a.group_size == b.group_size;
}

std::optional<std::string> find_mismatch(const std::vector<RequestClass>& classes, const ValidationContext& context) {
  HVD_CHECK(!classes.empty(), "nothing to validate");
  const Request& first = classes.front().representative;
  for (const Rule* rule : {&kTypes, &kOperations, &kShapes, &kFactors, &kReductions}) {
    if (Mismatch found = check_rule(*rule, classes)) return found;
  }
  if (has_free_first_dim(first.op)) {
    if (Mismatch found = check_scalar(classes)) return found;
    if (Mismatch found = check_rule(kInnerShapes, classes)) return found;
  }
  if (first.op == OpType::kReducescatter) {
    if (Mismatch found = check_scalar(classes)) return found;
  }
  for (const Rule* rule : {&kRoots, &kDevices}) {
    if (Mismatch found = check_rule(*rule, classes)) return found;
  }
  if (Mismatch found = check_joined(first, context)) return found;
  return check_rule(kGroups, classes);
}

}  // namespace hvd::negotiation
