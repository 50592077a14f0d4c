#include "starters/pmix_channel.h"

#include <dlfcn.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <tuple>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/socket_io.h"
#include "runtime/base/thread.h"
#include "runtime/base/wipe.h"
#include "starters/announcement.h"

namespace hvd::starters {
// What the library's functions take and give.
namespace pmix {

// As the PMIx standard has them, of version 2 to 5; there is no need for its headers, of which few hosts have any.
constexpr int kSuccess = 0;
constexpr std::uint8_t kGlobal = 3;   // a scope: for processes of all hosts
constexpr std::uint16_t kString = 3;  // a type of values
constexpr const char* kKey = "horovod";

struct Process {
  std::array<char, 256> job;
  std::uint32_t rank;
};

struct Value {
  std::uint16_t type;
  char* string;                 // the first of a union
  std::array<char, 16> others;  // the rest of the largest
};

// What one asks for and then waits for: the library answers on its own thread, perhaps when nobody waits any more.
struct Answer {
  Fd event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::atomic<int> code = kSuccess;  // written last: what was written before is there for who has read it
  std::string text;

  ~Answer() { wipe(text); }
  void arrived() const { [[maybe_unused]] const int failed = eventfd_write(event.get(), 1); }
};

using SharedAnswer = std::shared_ptr<Answer>;

extern "C" {
void hvd_pmix_done(int code, void* data) {
  const std::unique_ptr<SharedAnswer> answer(static_cast<SharedAnswer*>(data));
  (*answer)->code = code;
  (*answer)->arrived();
}

void hvd_pmix_got(int code, Value* value, void* data) {
  const std::unique_ptr<SharedAnswer> answer(static_cast<SharedAnswer*>(data));
  if (code == kSuccess && value != nullptr && value->type == kString && value->string != nullptr) {
    (*answer)->text.assign(value->string, strnlen(value->string, 2 * kMaxAnnouncementChars));
  }
  (*answer)->code = code;
  (*answer)->arrived();
}
}

// `ask` gets what the library hands to the callback; when it fails, no callback comes.
template <typename Ask>
Result<SharedAnswer> await(Ask&& ask, const Deadline& deadline, int wake_fd) {
  const auto answer = std::make_shared<Answer>();
  auto handed = std::make_unique<SharedAnswer>(answer);
  if (const int asked = ask(handed.get()); asked != kSuccess) {  // else the callback may have come already
    answer->code = asked;
    return answer;
  }
  std::ignore = handed.release();
  HVD_RETURN_IF_ERROR(wait_for_socket(answer->event.get(), POLLIN, deadline, wake_fd));
  return answer;
}

}  // namespace pmix

using pmix::await;
using pmix::kSuccess;
using pmix::Process;
using pmix::SharedAnswer;
using pmix::Value;

struct PmixChannel::Library {
  using Init = int (*)(Process*, const void* infos, std::size_t count);
  using Put = int (*)(std::uint8_t scope, const char* key, Value*);
  using Commit = int (*)();
  using Fence = int (*)(const Process*, std::size_t, const void* infos, std::size_t, void (*)(int, void*), void*);
  using Get = int (*)(const Process*, const char* key, const void* infos, std::size_t, void (*)(int, Value*, void*),
                      void*);
  using Finalize = int (*)(const void* infos, std::size_t);
  using Explain = const char* (*)(int);

  void* handle = nullptr;
  Init init = nullptr;
  Put put = nullptr;
  Commit commit = nullptr;
  Fence fence = nullptr;
  Get get = nullptr;
  Finalize finalize = nullptr;
  Explain explain = nullptr;
  Process self{};

  template <typename F>
  bool find(F& function, const char* name) const {
    function = reinterpret_cast<F>(dlsym(handle, name));
    return function != nullptr;
  }
};

std::shared_ptr<PmixChannel::Library> PmixChannel::load() {
  auto library = std::make_shared<Library>();
  Library& l = *library;
  // Local: what it needs itself (libevent, hwloc) must not come before what other modules bring along.
  l.handle = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  if (l.handle == nullptr) return nullptr;
  const bool is_whole = l.find(l.init, "PMIx_Init") && l.find(l.put, "PMIx_Put") && l.find(l.commit, "PMIx_Commit") &&
                        l.find(l.fence, "PMIx_Fence_nb") && l.find(l.get, "PMIx_Get_nb") &&
                        l.find(l.finalize, "PMIx_Finalize") && l.find(l.explain, "PMIx_Error_string");
  return is_whole ? library : nullptr;
}

Result<std::unique_ptr<PmixChannel>> PmixChannel::open_library(int rank, const Deadline& deadline, int wake_fd) {
  const std::shared_ptr<Library> library = load();
  if (library == nullptr) return std::unique_ptr<PmixChannel>();
  // PMIx_Init waits for the manager for as long as that says nothing, and cannot be interrupted: so it has a thread of
  // its own, which is given up when it takes too long.
  const auto answer = std::make_shared<pmix::Answer>();
  start_thread("hvd-pmix-init", [library, answer](const std::stop_token&) {
    answer->code = library->init(&library->self, nullptr, 0);
    answer->arrived();
  }).detach();
  const Status answered = wait_for_socket(answer->event.get(), POLLIN, deadline, wake_fd);
  if (answered.code() == StatusCode::kTimeout) {
    return Status::timeout(
        "the process manager does not answer PMIx_Init; HOROVOD_SHARED_DIR names a folder to meet in instead");
  }
  HVD_RETURN_IF_ERROR(answered);
  if (answer->code != kSuccess) {
    HVD_LOG(kWarning, "no process manager answers by PMIx", log_field("code", std::to_string(answer->code)));
    return std::unique_ptr<PmixChannel>();
  }
  return std::unique_ptr<PmixChannel>(new PmixChannel(library, rank));
}

PmixChannel::PmixChannel(std::shared_ptr<Library> library, int rank) : library_(std::move(library)), rank_(rank) {}

// The library stays: its thread may still be in it.
PmixChannel::~PmixChannel() { forget(); }

Status PmixChannel::failed(const char* call, int code) const {
  const char* const text = library_->explain(code);
  return Status::internal(name() + ": " + call + ": " + (text == nullptr ? "error " + std::to_string(code) : text) +
                          "; HOROVOD_SHARED_DIR names a folder to meet in instead");
}

Status PmixChannel::open(const Wait&) {
  if (library_->self.rank == static_cast<std::uint32_t>(rank_)) return Status::ok();
  return Status::internal(name() + ": it takes this process for rank " + std::to_string(library_->self.rank) +
                          ", expected " + std::to_string(rank_));
}

Status PmixChannel::put(const std::string& text, const Wait&) {
  std::string copy = text;
  Value value{.type = pmix::kString, .string = copy.data(), .others = {}};
  const int code = library_->put(pmix::kGlobal, pmix::kKey, &value);
  wipe(copy);
  if (code != kSuccess) return failed("PMIx_Put", code);
  const int committed = library_->commit();
  return committed == kSuccess ? Status::ok() : failed("PMIx_Commit", committed);
}

Status PmixChannel::pass_fence(const Wait& wait) {
  HVD_ASSIGN_OR_RETURN(
      const SharedAnswer answer,
      await([this](void* data) { return library_->fence(nullptr, 0, nullptr, 0, &pmix::hvd_pmix_done, data); },
            wait.deadline, wait.wake_fd));
  return answer->code == kSuccess ? Status::ok() : failed("PMIx_Fence", answer->code);
}

Result<std::string> PmixChannel::get(const Wait& wait) {
  Process rank0 = library_->self;
  rank0.rank = 0;
  HVD_ASSIGN_OR_RETURN(
      const SharedAnswer answer,
      await([&](void* data) { return library_->get(&rank0, pmix::kKey, nullptr, 0, &pmix::hvd_pmix_got, data); },
            wait.deadline, wait.wake_fd));
  if (answer->code != kSuccess) return failed("PMIx_Get", answer->code);
  if (answer->text.empty()) return Status::internal(name() + ": what rank 0 has put there is no text");
  return answer->text;
}

void PmixChannel::leave() {
  if (!std::exchange(is_open_, false)) return;
  const int code = library_->finalize(nullptr, 0);
  if (code != kSuccess) HVD_LOG(kDebug, "no goodbye", log_field("code", std::to_string(code)));
}

}  // namespace hvd::starters
