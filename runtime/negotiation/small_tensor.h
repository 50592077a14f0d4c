#pragma once

#include <cstddef>
#include <string>

#include "runtime/wire/messages.h"

// Tensors so small that their elements travel with their bit: reports carry them up, where each node reduces what its
// subtree gave, and the decision carries the result down. Pure.
namespace hvd::negotiation {

// The bytes of a tensor that may; else 0. Such is an allreduce of at most wire::kMaxElementsBytes in host memory.
std::size_t elements_bytes(const wire::Response& response);

// How the elements of a cached tensor are reduced.
struct SmallTensor {
  std::size_t bytes = 0;  // 0: it does not travel
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;  // an average is a sum that is divided afterwards

  SmallTensor() = default;
  explicit SmallTensor(const wire::Response& response);
  // into = op(into, other). Requires: both have `bytes` bytes.
  void reduce(std::string& into, const std::string& other) const;
};

// This rank's elements, with the prescale factor applied. Requires: elements_bytes(response) > 0.
std::string read_elements(const wire::Response& response, const void* input);

}  // namespace hvd::negotiation
