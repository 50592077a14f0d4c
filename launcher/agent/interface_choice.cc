#include "launcher/agent/interface_choice.h"

#include <net/if.h>

#include <algorithm>
#include <memory>
#include <sstream>

namespace hvd::launcher {

std::vector<std::string> interfaces_here() {
  std::vector<std::string> names;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> list(::if_nameindex(), &::if_freenameindex);
  for (const struct if_nameindex* one = list.get(); one != nullptr && one->if_name != nullptr; ++one) {
    names.emplace_back(one->if_name);
  }
  return names;
}

Result<std::string> choose_interface(const std::string& chosen, const std::vector<std::string>& here) {
  std::istringstream in(chosen);
  for (std::string name; std::getline(in, name, ',');) {
    if (std::find(here.begin(), here.end(), name) != here.end()) return name;
  }
  std::string known;
  for (const std::string& name : here) known += (known.empty() ? "" : ", ") + name;
  return Status::invalid_argument("it has none of the network interfaces '" + chosen +
                                  "' (--network-interfaces or HOROVOD_GLOO_IFACE); it has " +
                                  (known.empty() ? "none" : known));
}

}  // namespace hvd::launcher
