#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

// Adasum by the published rule. Products are summed in long double: the sum of 300,007 in double, one after another, is
// off by more than what is compared with it, which sums in several lanes and on several ranks (5e-12 against 4e-14 of
// the results). Each level is rounded to double, as what is compared.
namespace hvd::collectives::adasum {

using Vector = std::vector<double>;

inline Vector pair_rule(const Vector& a, const Vector& b) {
  long double dot = 0;
  long double na = 0;
  long double nb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += static_cast<long double>(a[i]) * b[i];
    na += static_cast<long double>(a[i]) * a[i];
    nb += static_cast<long double>(b[i]) * b[i];
  }
  const long double tiny = std::sqrt(std::numeric_limits<double>::min());
  const long double ca = na < tiny ? 1 : 1 - dot / (2 * na);
  const long double cb = nb < tiny ? 1 : 1 - dot / (2 * nb);
  Vector out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(static_cast<double>(ca * a[i] + cb * b[i]));
  return out;
}

// The binary tree; when there are too many for a power of two, the first ones are combined in pairs before.
inline Vector reference(std::vector<Vector> leaves) {
  const std::size_t power = std::bit_floor(leaves.size());
  std::vector<Vector> level;
  const std::size_t folded = leaves.size() - power;
  for (std::size_t i = 0; i < folded; ++i) level.push_back(pair_rule(leaves[2 * i], leaves[2 * i + 1]));
  for (std::size_t i = 2 * folded; i < leaves.size(); ++i) level.push_back(leaves[i]);
  while (level.size() > 1) {
    std::vector<Vector> next;
    for (std::size_t i = 0; i < level.size(); i += 2) next.push_back(pair_rule(level[i], level[i + 1]));
    level = std::move(next);
  }
  return level.front();
}

}  // namespace hvd::collectives::adasum
