#include "runtime/collectives/gloo/origin.h"

#include <dlfcn.h>
#include <gloo/allreduce.h>

namespace hvd::collectives {

std::string gloo_origin() {
  using Allreduce = void (*)(const gloo::AllreduceOptions&);
  const Allreduce symbol = &gloo::allreduce;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(symbol), &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace hvd::collectives
