#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "runtime/base/status.h"

namespace hvd {

// All of a file that the user names, of at most `limit` bytes, in whole MiB, without a byte order mark of UTF-8 before
// it. Errors begin with `what`. A pipe is waited for, where that may be.
enum class InputKind { kFileOrPipe, kFileOnly };
Result<std::string> read_input(const std::string& path, const std::string& what, std::size_t limit,
                               InputKind kind = InputKind::kFileOrPipe);

// All of a file of the system's, as /proc has them. Nothing where it cannot be opened.
std::optional<std::string> content_of(const std::string& path);

// The same on processes that run on one machine since it was started; empty when the system does not tell.
std::string boot_id();
// What a symbolic link says: "net:[4026531840]"; empty when the system does not tell.
std::string link_target(const std::string& path);

}  // namespace hvd
