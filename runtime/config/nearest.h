#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hvd::config {

// Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that a person who typed `word` most likely meant, or "" when none is near: the one of the same letters,
// else the one with the fewest edits (a third of the letters at most; ties go to the earlier candidate), else the one
// that begins with these letters. What is neither a letter nor a digit is no letter here.
std::string_view nearest_match(std::string_view word, std::span<const std::string_view> candidates);

// "; did you mean X?", or "" when nothing is near: the tail of an error message. Without a `prefix` that all of them
// have words are compared, or it would make any two of them near; it stands in the message.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates,
                         std::string_view prefix = "");

}  // namespace hvd::config
