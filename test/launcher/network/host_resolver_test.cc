#include "launcher/network/host_resolver.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "runtime/base/thread.h"
#include "runtime/loop/timer.h"
#include "test/support/temp_folder.h"

using namespace hvd;
using namespace hvd::launcher;
using hvd::test::TempFolder;

namespace {

// While it lives, threads get stacks of this size.
class StackSize {
 public:
  explicit StackSize(std::size_t bytes) {
    pthread_getattr_default_np(&usual_);
    pthread_attr_t attributes = usual_;
    pthread_attr_setstacksize(&attributes, bytes);
    is_set_ = pthread_setattr_default_np(&attributes) == 0;
  }
  ~StackSize() { pthread_setattr_default_np(&usual_); }
  StackSize(const StackSize&) = delete;
  StackSize& operator=(const StackSize&) = delete;
  bool is_set() const { return is_set_; }

 private:
  pthread_attr_t usual_;
  bool is_set_;
};

// While it lives, this process gets no more than so much further address space.
class FurtherMemory {
 public:
  explicit FurtherMemory(std::size_t bytes) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &usual_);
    const rlimit less = {pages * static_cast<std::size_t>(getpagesize()) + bytes, usual_.rlim_max};
    setrlimit(RLIMIT_AS, &less);
  }
  ~FurtherMemory() { setrlimit(RLIMIT_AS, &usual_); }
  FurtherMemory(const FurtherMemory&) = delete;
  FurtherMemory& operator=(const FurtherMemory&) = delete;

 private:
  rlimit usual_;
};

}  // namespace

TEST_CASE("many names are looked up at once, and come back in their order", "[job]") {
  MainLoop loop;
  std::vector<std::string> names;
  for (int i = 0; i < 200; ++i) names.push_back(i % 2 == 0 ? "localhost" : "192.0.2." + std::to_string(i));
  std::vector<ResolvedHost> found;
  HostResolver resolver(loop, names, "", Millis(20000), [&](std::vector<ResolvedHost> hosts) {
    found = std::move(hosts);
    loop.stop();
  });
  resolver.start();
  loop.run();
  REQUIRE(found.size() == names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    REQUIRE_FALSE(found[i].addresses.empty());
    CHECK((i % 2 == 0 ? is_loopback(found[i].addresses.front()) : found[i].addresses.front() == names[i]));
    CHECK_FALSE(found[i].by_ssh);
  }
}

TEST_CASE("a resolver that has no time gives what it has, and one that goes is not answered", "[job]") {
  MainLoop loop;
  int calls = 0;
  for (int i = 0; i < 20; ++i) {
    HostResolver resolver(loop, std::vector<std::string>(100, "localhost"), "", Millis(0),
                          [&](const std::vector<ResolvedHost>& hosts) {
                            CHECK(hosts.size() == 100);
                            ++calls;
                            loop.stop();
                          });
    resolver.start();
    if (i % 2 == 0) loop.run();
  }
  CHECK(calls == 10);
}

TEST_CASE("names that no thread is there for are not found, and the launcher goes on", "[job]") {
  MainLoop loop;
  std::vector<ResolvedHost> found;
  HostResolver resolver(loop, {"192.0.2.1", "localhost", "192.0.2.2"}, "", Millis(20000),
                        [&](std::vector<ResolvedHost> hosts) {
                          found = std::move(hosts);
                          loop.stop();
                        });
  {
    const StackSize too_large(std::size_t{1} << 47);  // no address space is left for such a stack
    REQUIRE(too_large.is_set());
    resolver.start();
  }
  loop.run();
  REQUIRE(found.size() == 3);
  CHECK(found[0].addresses.empty());
  CHECK(found[1].addresses.front() == "127.0.0.1");
  CHECK(found[2].addresses.empty());
}

TEST_CASE("threads that have looked up have given back their stacks when the answer is heard", "[job]") {
  constexpr std::size_t kStack = 1UL << 30;
  constexpr std::size_t kThreads = 4;
  const StackSize stacks(kStack);
  REQUIRE(stacks.is_set());
  for (int i = 0; i < 50; ++i) {
    MainLoop loop;
    std::optional<FurtherMemory> room;
    HostResolver resolver(loop, std::vector<std::string>(kThreads, "localhost"), "", Millis(20000),
                          [&](const std::vector<ResolvedHost>& hosts) {
                            for (const ResolvedHost& host : hosts) CHECK_FALSE(host.addresses.empty());
                            std::vector<std::jthread> next;
                            CHECK_NOTHROW(std::generate_n(std::back_inserter(next), kThreads, [] {
                              return start_thread("next", [](const std::stop_token&) {});
                            }));
                            loop.stop();
                          });
    room.emplace(kThreads * kStack + kStack / 2);  // the half: for what malloc takes for each thread
    resolver.start();
    loop.run();
  }
}

TEST_CASE("a resolver that has no time left asks ssh for no further name", "[job]") {
  const TempFolder folder;
  const std::string asked = folder / "asked";
  const std::string ssh = folder / "ssh";
  std::ofstream(ssh) << "#!/bin/sh\necho x >> " << asked << "\nsleep 1\necho hostname localhost\n";
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  MainLoop loop;
  int calls = 0;
  // Names that no server is asked for: they are too long.
  HostResolver resolver(loop, std::vector<std::string>(20, std::string(300, 'x')), ssh, Millis(500),
                        [&](const std::vector<ResolvedHost>& hosts) {
                          CHECK(hosts.size() == 20);
                          ++calls;
                        });
  loop::Timer end(loop.get(), [&] { loop.stop(); });
  end.start(Millis(2500));
  resolver.start();
  loop.run();
  CHECK(calls == 1);
  std::ifstream lines(asked);
  CHECK(std::count(std::istreambuf_iterator<char>(lines), {}, 'x') == HostResolver::kMaxQueries);
}
