#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/process/loop.h"
#include "launcher/process/timer.h"

namespace hvd::launcher {

// Looks up the addresses of all hosts at once, on libuv's thread pool, and gives up on those that take too long: a slow
// name server must not decide how long a launch takes. Owned by the JobDriver, loop-confined; used once.
class HostResolver {
 public:
  static constexpr Millis kPatience{10000};
  // Numeric addresses of each host, in the order of the names; none for a name that is not known.
  using OnDone = std::function<void(std::vector<std::vector<std::string>>)>;

  HostResolver(Loop& loop, std::vector<std::string> names, OnDone on_done);
  ~HostResolver();
  void start();

 private:
  struct Lookup;
  void finished(std::size_t index, std::vector<std::string> addresses);
  void done();

  Loop& loop_;
  std::vector<std::string> names_;
  OnDone on_done_;
  std::vector<std::vector<std::string>> found_;
  std::vector<Lookup*> pending_;
  std::size_t left_ = 0;
  Timer patience_;
};

}  // namespace hvd::launcher
