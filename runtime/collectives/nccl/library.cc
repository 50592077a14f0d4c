#include "runtime/collectives/nccl/library.h"

#include <dlfcn.h>

#include "runtime/base/dynamic_library.h"

namespace hvd::collectives::nccl {

namespace {

constexpr int kOldest = 21800;  // older ones are not tried
constexpr const char* kSoname = "libnccl.so.2";

std::string version_name(int version) { return "NCCL " + version_text(version); }

std::string fill(Calls& calls, const DynamicLibrary& library) {
  FunctionTable table(library, version_name);
  table.take(calls.version, "ncclGetVersion", 20000);
  table.take(calls.error_text, "ncclGetErrorString", 20000);
  table.take(calls.last_error, "ncclGetLastError", 21300);
  table.take(calls.unique_id, "ncclGetUniqueId", 20000);
  table.take(calls.init, "ncclCommInitRankConfig", 21400);
  table.take(calls.finalize, "ncclCommFinalize", 21400);
  table.take(calls.destroy, "ncclCommDestroy", 20000);
  table.take(calls.abort, "ncclCommAbort", 20400);
  table.take(calls.async_error, "ncclCommGetAsyncError", 20400);
  table.take(calls.group_start, "ncclGroupStart", 20000);
  table.take(calls.group_end, "ncclGroupEnd", 20000);
  table.take(calls.all_reduce, "ncclAllReduce", 20000);
  table.take(calls.reduce, "ncclReduce", 20000);
  table.take(calls.reduce_scatter, "ncclReduceScatter", 20000);
  table.take(calls.broadcast, "ncclBroadcast", 20202);
  table.take(calls.all_gather, "ncclAllGather", 20000);
  table.take(calls.send, "ncclSend", 20700);
  table.take(calls.receive, "ncclRecv", 20700);
  table.take(calls.make_pre_mul_sum, "ncclRedOpCreatePreMulSum", 21100);
  table.take(calls.end_reduction, "ncclRedOpDestroy", 21100);
  return table.missing();
}

// What is used where it is there. By the version too, so that all members decide alike.
void fill_newer(Calls& calls, const DynamicLibrary& library, int version) {
  const auto take = [&]<typename F>(F*& function, const char* name, int since) {
    if (version >= since) function = library.function<F>(name);
  };
  take(calls.allocate, "ncclMemAlloc", 21900);
  take(calls.free, "ncclMemFree", 21900);
  take(calls.register_memory, "ncclCommRegister", 21900);
  take(calls.deregister_memory, "ncclCommDeregister", 21900);
  take(calls.init_scalable, "ncclCommInitRankScalable", 22300);
  take(calls.register_window, "ncclCommWindowRegister", 22700);
  take(calls.deregister_window, "ncclCommWindowDeregister", 22700);
}

// Where the package nvidia-nccl lies when it is installed beside this one: <site-packages>/horovod/<this library>.
std::string file_beside() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&file_beside), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string own = info.dli_fname;
  const std::size_t folder = own.rfind('/');
  if (folder == std::string::npos) return "";
  return own.substr(0, folder) + "/../nvidia/nccl/lib/" + kSoname;
}

Result<DynamicLibrary> find(const std::string& file) {
  if (!file.empty()) return DynamicLibrary::open(file);
  if (auto loaded = DynamicLibrary::find_loaded(kSoname); loaded.is_ok()) return loaded;
  if (auto beside = DynamicLibrary::open(file_beside()); beside.is_ok()) return beside;
  return DynamicLibrary::open(kSoname);
}

}  // namespace

std::string version_text(int version) {
  // Up to 2.8 a minor version had one digit more of its own.
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

Result<std::shared_ptr<const Library>> Library::load(const std::string& file) {
  const Result<DynamicLibrary> found = find(file);
  if (!found.is_ok()) return found.status().annotate("there is no NCCL");
  std::shared_ptr<Library> library(new Library);
  const std::string missing = fill(library->calls_, found.value());
  library->file_ = found.value().file_of("ncclGetVersion");
  const Calls& calls = library->calls_;
  if (calls.version != nullptr && calls.version(&library->version_) == kSuccess && library->version_ < kOldest) {
    return Status::precondition("NCCL in " + library->file_ + " is of version " + version_text(library->version_) +
                                ", expected " + version_text(kOldest) + " or later");
  }
  if (!missing.empty()) {
    return Status::precondition("NCCL in " + (file.empty() ? kSoname : file) + " has no function " + missing);
  }
  fill_newer(library->calls_, found.value(), library->version_);
  return std::shared_ptr<const Library>(std::move(library));
}

Status Library::check(int result, const std::string& what, void* comm) const {
  if (result == kSuccess || result == kInProgress) return Status::ok();
  const char* const detail = calls_.last_error(comm);
  std::string text = what + ": NCCL says " + calls_.error_text(result);
  if (detail != nullptr && *detail != '\0') text += std::string(" (") + detail + ")";
  return Status::internal(std::move(text));
}

}  // namespace hvd::collectives::nccl
