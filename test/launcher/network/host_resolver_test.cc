#include "launcher/network/host_resolver.h"

#include <pthread.h>

#include <catch2/catch.hpp>

using namespace hvd;
using namespace hvd::launcher;

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
  pthread_attr_t usual;
  pthread_getattr_default_np(&usual);
  pthread_attr_t attributes = usual;
  pthread_attr_setstacksize(&attributes, std::size_t{1} << 47);  // no address space is left for such a stack
  REQUIRE(pthread_setattr_default_np(&attributes) == 0);
  resolver.start();
  pthread_setattr_default_np(&usual);
  loop.run();
  REQUIRE(found.size() == 3);
  CHECK(found[0].addresses.empty());
  CHECK(found[1].addresses.front() == "127.0.0.1");
  CHECK(found[2].addresses.empty());
}
