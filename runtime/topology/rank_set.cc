#include "runtime/topology/rank_set.h"

#include <bit>

#include "runtime/base/check.h"

namespace hvd::topology {
namespace {
constexpr int kBits = 64;
std::size_t word_of(int index) { return static_cast<std::size_t>(index / kBits); }
std::uint64_t mask_of(int index) { return std::uint64_t{1} << (index % kBits); }
}  // namespace

RankSet::RankSet(int capacity) : capacity_(capacity), words_(word_of(capacity + kBits - 1)) {
  HVD_CHECK(capacity >= 0, "negative capacity");
}

bool RankSet::insert(int index) {
  HVD_CHECK(index >= 0 && index < capacity_, "rank outside of the set's capacity");
  std::uint64_t& word = words_[word_of(index)];
  if ((word & mask_of(index)) != 0) return false;
  word |= mask_of(index);
  ++count_;
  return true;
}

bool RankSet::insert_run(int first, int count) {
  HVD_CHECK(first >= 0 && count > 0 && count <= capacity_ - first, "ranks outside of the set's capacity");
  const auto last = static_cast<std::size_t>(word_of(first + count - 1));
  const auto mask = [&](std::size_t word) {
    std::uint64_t bits = ~std::uint64_t{0};
    if (word == word_of(first)) bits &= ~(mask_of(first) - 1);
    if (word == last) bits &= mask_of(first + count - 1) | (mask_of(first + count - 1) - 1);
    return bits;
  };
  for (std::size_t word = word_of(first); word <= last; ++word) {
    if ((words_[word] & mask(word)) != 0) return false;
  }
  for (std::size_t word = word_of(first); word <= last; ++word) words_[word] |= mask(word);
  count_ += count;
  return true;
}

bool RankSet::contains(int index) const {
  return index >= 0 && index < capacity_ && (words_[word_of(index)] & mask_of(index)) != 0;
}

void RankSet::clear() {
  words_.assign(words_.size(), 0);
  count_ = 0;
}

int RankSet::union_count(const RankSet& other) const {
  HVD_CHECK(other.capacity_ == capacity_, "union of sets of different capacity");
  int count = 0;
  for (std::size_t i = 0; i < words_.size(); ++i) count += std::popcount(words_[i] | other.words_[i]);
  return count;
}

std::vector<int> RankSet::missing_from_union(const RankSet& other) const {
  HVD_CHECK(other.capacity_ == capacity_, "union of sets of different capacity");
  std::vector<int> missing;
  for (int i = 0; i < capacity_; ++i) {
    if (!contains(i) && !other.contains(i)) missing.push_back(i);
  }
  return missing;
}

}  // namespace hvd::topology
