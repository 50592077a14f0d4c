#pragma once

#include <sys/stat.h>

#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd {

// Files that the user names for what is written for him. In their place may be what another user has put there, where
// that one may write in the folder, too: so no link is followed, and nothing is emptied before it is known whose it is.
// Nobody waits for the reader of a pipe.

// An error that names the file unless it is our user's.
Status check_owner(const struct stat& info, const std::string& name);

// `base` in that folder, which messages call `name`: a plain file of the user's own, with one name, made where it is
// not there. `flags`: of open(2), how it is written.
Result<Fd> open_own_file(const Fd& folder, const char* base, const std::string& name, int flags);

// To be written from its beginning: the same, or root's, emptied; or a pipe, a device, or what /dev has a link for,
// such as /dev/stdout.
Result<Fd> open_emptied(const std::string& name);

}  // namespace hvd
