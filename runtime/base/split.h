#pragma once

#include <string_view>
#include <vector>

namespace hvd {

// "a,b,c" in pieces, which are parts of the text; "" is one piece.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace hvd
