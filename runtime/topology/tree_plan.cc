#include "runtime/topology/tree_plan.h"

#include <algorithm>
#include <cstdint>

#include "runtime/base/check.h"

namespace hvd::topology {

TreePlan::TreePlan(int size, int radix) : size_(size), radix_(radix) {
  HVD_CHECK(size >= 1, "a tree has at least one rank");
  HVD_CHECK(radix >= 1 && radix <= kMaxRadix, "radix out of range");
}

int TreePlan::parent(int rank) const { return rank == 0 ? -1 : (rank - 1) / radix_; }

std::vector<int> TreePlan::children(int rank) const {
  std::vector<int> found;
  const std::int64_t first = std::int64_t{rank} * radix_ + 1;
  for (std::int64_t child = first; child < first + radix_ && child < size_; ++child) {
    found.push_back(static_cast<int>(child));
  }
  return found;
}

int TreePlan::child_towards(int root, int rank) const {
  if (rank >= size_) return -1;
  while (rank > root) {
    const int above = parent(rank);
    if (above == root) return rank;
    rank = above;
  }
  return -1;
}

bool TreePlan::has_run(int root, int first, int count) const {
  const std::int64_t end = std::int64_t{first} + count;
  if (first < root || end > size_) return false;
  std::int64_t next = first;  // of the run, not found yet
  std::int64_t low = root;
  std::int64_t high = root;  // one level of the subtree is the ranks low .. high
  while (low < size_ && next < end && next >= low) {
    if (next <= high) next = high + 1;
    low = low * radix_ + 1;
    high = high * radix_ + radix_;
  }
  return next >= end;
}

int TreePlan::subtree_size(int root) const {
  std::int64_t count = 0;
  std::int64_t first = root;
  std::int64_t last = root;  // one level of the subtree is the ranks first .. last
  while (first < size_) {
    count += std::min<std::int64_t>(last, size_ - 1) - first + 1;
    first = first * radix_ + 1;
    last = last * radix_ + radix_;
  }
  return static_cast<int>(count);
}

}  // namespace hvd::topology
