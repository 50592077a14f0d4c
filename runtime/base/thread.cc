#include "runtime/base/thread.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/failpoint.h"
#include "runtime/base/plain_floats.h"

namespace hvd {
namespace {

// Also when there is no thread, and an exception says so.
struct Restorer {
  ~Restorer() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  const sigset_t& mask;
};

}  // namespace

std::jthread start_thread(std::string name, std::function<void(std::stop_token)> body) {
  if (HVD_FAILPOINT_CALL("thread.start", 0) != 0) throw std::system_error(errno, std::generic_category(), name);
  // Block before creating: the thread inherits the mask, so there is no moment at which it could take a signal.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const Restorer restorer{old};
  return std::jthread([name = std::move(name), body = std::move(body)](std::stop_token stop) {
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    const PlainFloats floats;
    try {
      body(std::move(stop));
    } catch (const std::exception& e) {
      HVD_CHECK(false, (name + ": uncaught exception: " + e.what()).c_str());
    }
  });
}

void for_each_at_once(const std::string& name, std::size_t count, std::size_t most,
                      const std::function<void(std::size_t)>& each) {
  std::atomic<std::size_t> next = 0;
  std::exception_ptr first;
  std::once_flag has_thrown;
  const auto run = [&] {
    try {
      for (std::size_t mine = next++; mine < count; mine = next++) each(mine);
    } catch (...) {
      next = count;
      std::call_once(has_thrown, [&] { first = std::current_exception(); });
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      while (others.size() + 1 < std::min(count, most)) {
        others.push_back(start_thread(name, [&](const std::stop_token&) { run(); }));
      }
    } catch (const std::system_error&) {  // those that there are do it all
    }
    run();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace hvd
