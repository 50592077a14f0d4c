#include "runtime/config/nearest.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>
#include <vector>

namespace hvd::config {

namespace {
// Longer words are no typing errors of ours; the bound keeps hostile input cheap (the table is quadratic).
constexpr std::size_t kMaxWord = 128;
// Fewer begin too many words.
constexpr std::size_t kFewestFirstLetters = 4;

// "cycletimems" of "--cycle-time-ms".
std::string letters_of(std::string_view word) {
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0; };
  std::string letters;
  std::copy_if(word.begin(), word.end(), std::back_inserter(letters), is_letter);
  return letters;
}

std::string_view with_same_letters(const std::string& letters, std::span<const std::string_view> candidates) {
  const auto found = std::ranges::find_if(candidates, [&](auto candidate) { return letters_of(candidate) == letters; });
  return found == candidates.end() || letters.empty() ? "" : *found;
}

// The shortest, if all others that begin so are longer forms of it: --autotune, and not one of --timeout, --timestamp.
std::string_view with_first_letters(const std::string& letters, std::span<const std::string_view> candidates) {
  if (letters.size() < kFewestFirstLetters) return "";
  std::string_view shortest;
  std::vector<std::string> begin_so;
  for (const std::string_view candidate : candidates) {
    std::string all = letters_of(candidate);
    if (!all.starts_with(letters)) continue;
    if (shortest.empty() || all.size() < letters_of(shortest).size()) shortest = candidate;
    begin_so.push_back(std::move(all));
  }
  const bool is_one = std::ranges::all_of(
      begin_so, [first = letters_of(shortest)](const std::string& all) { return all.starts_with(first); });
  return is_one ? shortest : "";
}

std::string_view with_fewest_edits(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(word.size() / 3, 1) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment: three rows suffice, for a swap looks two rows back.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0U : 1U)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string_view nearest_match(std::string_view word, std::span<const std::string_view> candidates) {
  if (word.empty() || word.size() > kMaxWord) return "";
  const std::string letters = letters_of(word);
  if (const auto same = with_same_letters(letters, candidates); !same.empty()) return same;
  if (const auto near = with_fewest_edits(word, candidates); !near.empty()) return near;
  return with_first_letters(letters, candidates);
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates, std::string_view prefix) {
  if (!word.starts_with(prefix)) return "";
  std::vector<std::string_view> ends;
  for (const std::string_view candidate : candidates) {
    if (candidate.starts_with(prefix)) ends.push_back(candidate.substr(prefix.size()));
  }
  const std::string_view nearest = nearest_match(word.substr(prefix.size()), ends);
  if (nearest.empty()) return "";
  return "; did you mean " + std::string(prefix) + std::string(nearest) + "?";
}

}  // namespace hvd::config
