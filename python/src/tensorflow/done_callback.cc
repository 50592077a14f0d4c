#include "python/src/tensorflow/done_callback.h"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hvd::tensorflow {

namespace {

// libstdc++'s std::function: two words of storage, then the pointers to its manager and to its invoker.
constexpr std::size_t kWords = 4;
static_assert(sizeof(std::function<void()>) == kWords * sizeof(void*), "expected libstdc++'s std::function");

// Whether `address` is inside a library of TensorFlow.
bool is_tensorflow_code(std::uintptr_t address) {
  Dl_info info{};
  if (address == 0 || ::dladdr(reinterpret_cast<void*>(address), &info) == 0 || info.dli_fname == nullptr) return false;
  return std::string_view(info.dli_fname).find("tensorflow") != std::string_view::npos;
}

bool looks_like_their_function(const TF_AsyncOpKernelDoneCallback* done) {
  std::array<std::uintptr_t, kWords> words{};
  std::memcpy(words.data(), done, sizeof(words));
  return is_tensorflow_code(words[2]) && is_tensorflow_code(words[3]);
}

}  // namespace

Result<std::function<void()>> copy_done_callback(TF_AsyncOpKernelDoneCallback* done) {
  // One TensorFlow per process: what holds for the first call holds for all.
  static const bool is_known = looks_like_their_function(done);
  if (!is_known) {
    return Status::internal(
        "this version of TensorFlow hands asynchronous kernels a callback of an unknown form; Horovod knows those of "
        "TensorFlow 2.15 to 2.21");
  }
  return std::function<void()>(*reinterpret_cast<std::function<void()>*>(done));
}

}  // namespace hvd::tensorflow
