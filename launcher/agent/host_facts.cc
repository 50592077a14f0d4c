#include <net/if.h>
#include <sched.h>

#include <memory>

#include "launcher/agent/agent.h"
#include "runtime/base/input_file.h"

namespace hvd::launcher {
HostFacts facts_of_this_host() {
  HostFacts facts;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> list(::if_nameindex(),
                                                                                  &::if_freenameindex);
  for (const struct if_nameindex* one = list.get(); one != nullptr && one->if_name != nullptr; ++one) {
    facts.interfaces.emplace_back(one->if_name);
  }
  cpu_set_t mine;
  CPU_ZERO(&mine);
  // More processors than the set has room for: too many to share badly.
  const int cores = ::sched_getaffinity(0, sizeof mine, &mine) == 0 ? CPU_COUNT(&mine) : CPU_SETSIZE;
  facts.cores = cores_within(cores, cpu_quota(content_of));
  facts.has_quota = facts.cores < cores;
  return facts;
}

MemoryKills memory_kills_of_this_host() { return memory_kills(content_of); }

}  // namespace hvd::launcher
