#pragma once

#include <sys/stat.h>

#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/status.h"

namespace hvd {

// Files that the user names for what is written for him. In their place may be what another user has put there, where
// that one may write in the folder, too: so no link is followed, and nothing is emptied before it is known whose it is.
// Nobody waits for the reader of a pipe.

// Whether that user is root. In a user namespace that does not know root, what is his shows as belonging to the same
// number as all that the namespace does not know (overflowuid): then that one counts as root.
bool is_root(uid_t owner);

// An error that names the file unless it is our user's.
Status check_owner(const struct stat& info, const std::string& name);

// `base` in that folder, which messages call `name`: a plain file of the user's own, with one name, made where it is
// not there. `flags`: of open(2), how it is written.
Result<Fd> open_own_file(const Fd& folder, const char* base, const std::string& name, int flags);

// To be written from its beginning: the same, or root's, emptied, or new; or a pipe, a device, or what /dev has a link
// for, such as /dev/stdout. pwrite(2), which timelines are written with, is not for pipes.
Result<Fd> open_emptied(const std::string& name);

}  // namespace hvd
