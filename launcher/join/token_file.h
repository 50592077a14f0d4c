#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/crypto/secret.h"

namespace hvd::launcher {

// The token of --token-file: of a file that only this user may read; or of an inherited descriptor, /dev/fd/N from 3
// on, which is closed then, so that no child has it. With a pipe there is no file that could outlive whoever was to
// remove it. Errors name the path.
Result<crypto::Secret> read_token(const std::string& path);

}  // namespace hvd::launcher
