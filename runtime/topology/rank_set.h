#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd::topology {

// A set of the numbers 0 .. capacity-1 as a bitmap with its count kept. Value type, externally synchronised.
// Invariant: 0 <= count() <= capacity.
class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(int capacity);

  // True when `index` was not in the set before. Requires: 0 <= index < capacity.
  bool insert(int index);
  // The same for `count` consecutive numbers; false when one of them was in the set, which is unchanged then.
  bool insert_run(int first, int count);
  bool contains(int index) const;
  void clear();

  int count() const { return count_; }
  bool full() const { return count_ == capacity_; }
  // The size of the union with another set of the same capacity.
  int union_count(const RankSet& other) const;
  // Numbers in neither of the two, ascending.
  std::vector<int> missing_from_union(const RankSet& other) const;

 private:
  int capacity_ = 0;
  int count_ = 0;
  std::vector<std::uint64_t> words_;
};

}  // namespace hvd::topology
