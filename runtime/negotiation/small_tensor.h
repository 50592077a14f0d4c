#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/wire/messages.h"

// Tensors so small that their elements travel with their bit: reports carry them up, where each node reduces what its
// subtree gave, and the decision carries the result down. Pure.
namespace hvd::negotiation {

// How the elements of a cached tensor are reduced.
struct SmallTensor {
  std::size_t bytes = 0;  // 0: it does not travel
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;  // an average is a sum that is divided afterwards

  // Such is an allreduce of at most wire::kMaxElementsBytes in host memory.
  explicit SmallTensor(const wire::Response& response);
};

// What travels with one bit: a tensor, or those of a group, one behind the other. All of them, or nothing.
class SmallTensors {
 public:
  // In the order in which they are released.
  void add(const wire::Response& response);

  // Of all; 0: they do not travel.
  std::size_t bytes() const { return is_small_ ? bytes_ : 0; }
  std::size_t bytes_of(std::size_t tensor) const { return tensors_[tensor].bytes; }
  // into = op(into, other). Requires: both have bytes().
  void reduce(std::string& into, const std::string& other) const;

 private:
  std::vector<SmallTensor> tensors_;
  std::size_t bytes_ = 0;
  bool is_small_ = true;  // as long as all are
};

// Appends this rank's elements of one tensor, with the prescale factor applied. Requires: it travels.
void read_elements(const wire::Response& response, const void* input, std::string& elements);

}  // namespace hvd::negotiation
