#pragma once

#include <string>
#include <string_view>

namespace hvd::config {

// Whether a variable's value must not be printed: its name contains KEY, TOKEN, SECRET, PASS or CRED, in any case.
bool is_sensitive_name(std::string_view name);

// The value, or "***" for a sensitive name.
std::string printable_value(std::string_view name, std::string_view value);

}  // namespace hvd::config
