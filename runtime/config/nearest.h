#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hvd::config {

// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that a person who typed `word` most likely meant, or "" when none is near (more than a third of the
// letters differ). Ties go to the earlier candidate.
std::string_view nearest_match(std::string_view word, std::span<const std::string_view> candidates);

// "; did you mean X?", or "" when nothing is near: the tail of an error message.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace hvd::config
