#pragma once

#include <vector>

namespace hvd::topology {

// The control tree: rank 0 is the root, and the parent of rank r > 0 is (r - 1) / radix. A rank's children therefore
// are the contiguous ranks radix*r + 1 .. radix*r + radix that exist. Pure arithmetic, nothing is stored per rank.
// Invariants: 1 <= radix <= kMaxRadix, 0 <= parent(r) < r, and each rank r > 0 is a child of exactly one rank.
class TreePlan {
 public:
  static constexpr int kDefaultRadix = 8;
  static constexpr int kMaxRadix = 30;

  // Requires: size >= 1 and the invariant on radix.
  explicit TreePlan(int size, int radix = kDefaultRadix);

  int size() const { return size_; }
  int parent(int rank) const;  // -1 for the root
  std::vector<int> children(int rank) const;
  // The child of `root` through which `rank` is reached; -1 when `rank` is `root` or is not below it. Costs the depth
  // of the tree.
  int child_towards(int root, int rank) const;
  int subtree_size(int root) const;
  // Whether the ranks first .. first + count - 1 all lie in the subtree of `root`. Costs the depth of the tree.
  bool has_run(int root, int first, int count) const;

 private:
  int size_;
  int radix_;
};

}  // namespace hvd::topology
