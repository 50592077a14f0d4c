#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace hvd::launcher {

// The names of this host's network interfaces.
std::vector<std::string> interfaces_here();

// Of the interfaces that the user chose for all hosts ("eth0,ib3": hosts may call theirs differently) the first that is
// among those `here`. Pure.
Result<std::string> choose_interface(const std::string& chosen, const std::vector<std::string>& here);

}  // namespace hvd::launcher
