#include <cstdio>

#include "runtime/base/dynamic_library.h"
#include "runtime/collectives/nccl/library.h"

// Prints the file of the NCCL that a process finds, or why there is none.
// Usage: nccl_search <what HOROVOD_NCCL_LIBRARY says, or ""> [<a file that a framework has loaded>]
int main(int count, char** arguments) {
  if (count > 2 && !hvd::DynamicLibrary::open(arguments[2]).is_ok()) return 2;
  const auto library = hvd::collectives::nccl::Library::load(count > 1 ? arguments[1] : "");
  std::puts((library.is_ok() ? library.value()->file() : library.status().message()).c_str());
  return 0;
}
