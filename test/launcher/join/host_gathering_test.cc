#include "launcher/join/host_gathering.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

using namespace hvd;
using namespace hvd::launcher;

namespace {

Fd connect_to(const std::string& address) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&place), sizeof(place)) == 0);
  REQUIRE(::fcntl(fd.get(), F_SETFL, O_NONBLOCK) == 0);
  return fd;
}

bool is_closed_by_peer(const Fd& fd) {
  char byte = 0;
  const ssize_t size = ::recv(fd.get(), &byte, 1, 0);
  return size == 0 || (size < 0 && errno != EAGAIN);
}

// A host that calls, on the launcher's own loop.
struct Caller {
  Caller(MainLoop& loop, const std::string& address, const crypto::Secret& token, const JoinRequest& request) {
    link = SealedLink::open(loop, connect_to(address), SealedLink::Side::kHost, token,
                            {.on_proven =
                                 [this, request] {
                                   if (!waits) link->write(encode(request));
                                 },
                             .on_record = [this](ByteSpan bytes) { verdict = decode_join_verdict(bytes).value(); },
                             .on_end = {},
                             .on_progress = {}})
               .value();
  }
  std::unique_ptr<SealedLink> link;
  bool waits = false;  // it does not ask by itself
  JoinVerdict verdict;
};

struct Fixture {
  explicit Fixture(int hosts, bool is_elastic = false) {
    const GatherConfig config{.hosts = hosts, .listen_address = "127.0.0.1", .port = 0, .token_file = "t"};
    gathering = HostGathering::open(loop, config, is_elastic, token).value();
  }
  std::unique_ptr<Caller> call(const std::string& name, const std::string& version = HVD_VERSION,
                               const std::string& node = "") {
    return std::make_unique<Caller>(loop, gathering->address(), token,
                                    JoinRequest{.version = version, .name = name, .node = node});
  }
  // Lets things happen until the condition holds; false after 20 s.
  bool until(const std::function<bool()>& condition) {
    const Deadline deadline = Deadline::after(Millis(20000));
    while (!condition() && !deadline.expired()) {
      loop::Timer turn(loop.get(), [this] { loop.stop(); });
      turn.start(Millis(1));
      loop.run();
    }
    return condition();
  }
  bool refused(const std::string& name, const std::string& reason, const std::string& version = HVD_VERSION) {
    const auto caller = call(name, version);
    return until([&] { return caller->verdict.reason.find(reason) != std::string::npos; });
  }

  MainLoop loop;
  const crypto::Secret token = crypto::Secret::random();
  std::unique_ptr<HostGathering> gathering;
};

}  // namespace

TEST_CASE("hosts are gathered by name, and who is one too many is told", "[unit][join]") {
  Fixture world(2);
  const auto later = world.call("n10");
  REQUIRE(world.until([&] { return later->verdict.accepted; }));
  CHECK(world.refused("n10", "a host of the name n10 has joined already, from 127.0.0.1"));
  CHECK(world.refused("n1", "this host has version 0.0.1, the launcher " HVD_VERSION, "0.0.1"));
  CHECK(world.refused("me@n1", "is more than the name of a host"));
  const auto sooner = world.call("n2");
  REQUIRE(world.gathering->wait(Millis(20000), [](const std::string&) {}).is_ok());
  CHECK(world.refused("n3", "the job has its 2 hosts already"));
  world.gathering->begin();
  const std::vector<CalledHost> hosts = world.gathering->hosts();
  REQUIRE(hosts.size() == 2);
  CHECK(hosts[0].name == "n2");
  CHECK(hosts[1].name == "n10");
  CHECK(hosts[0].address == "127.0.0.1");
  // The job begins, one host leaves before anybody listens to it, and strangers still come.
  CHECK(world.refused("n3", "the job has its 2 hosts already"));
  CHECK(world.refused("n10", "has joined already, and the job has begun"));
  const auto lost = world.gathering->take("n10");
  later->link->close();
  REQUIRE(world.until([&] { return !lost->end().empty(); }));
  CHECK(world.gathering->take("n2")->end().empty());
  CHECK(world.gathering->take("n2") == nullptr);
  // It has its hosts for good.
  world.gathering->let_go("n10");
  CHECK(world.refused("n10", "has joined already, and the job has begun"));
}

TEST_CASE("who says nothing is let go, and so is a host that asks twice, whose name is free then", "[unit][join]") {
  Fixture world(2);
  const Fd silent = connect_to(world.gathering->address());
  CHECK(world.until([&] { return is_closed_by_peer(silent); }));
  const auto greedy = world.call("n1");
  REQUIRE(world.until([&] { return greedy->verdict.accepted; }));
  greedy->link->write(encode(JoinRequest{.version = HVD_VERSION, .name = "n2", .node = ""}));
  CHECK(world.until([&] { return greedy->verdict.reason == "it has asked before"; }));
  const auto next = world.call("n1");
  CHECK(world.until([&] { return next->verdict.accepted; }));
}

TEST_CASE("a gathering ends with who has asked for it", "[unit][join]") {
  Fixture world(1);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd asked(ends[0]);
  Fd asker(ends[1]);
  loop::Timer leaves(world.loop.get(), [&] { asker = Fd(); });
  REQUIRE(::write(asker.get(), "x", 1) == 1);  // that is not its end
  const Status late = world.gathering->wait(Millis(20), [](const std::string&) {}, asked.get());
  CHECK(late.code() == StatusCode::kTimeout);
  leaves.start(Millis(1));
  const Status status = world.gathering->wait(Millis(20000), [](const std::string&) {}, asked.get());
  CHECK(status.code() == StatusCode::kAborted);
  const auto host = world.call("n1");
  CHECK(world.gathering->wait(Millis(20000), [](const std::string&) {}).is_ok());
}

TEST_CASE("hosts of one node follow its first", "[unit][join]") {
  Fixture world(5);
  const auto misnamed = world.call("task-9", HVD_VERSION, "b:22");
  CHECK(world.until([&] { return misnamed->verdict.reason.find("is more than") != std::string::npos; }));
  std::vector<std::unique_ptr<Caller>> callers;
  const std::pair<const char*, const char*> tasks[] = {
      {"task-10", "b"}, {"task-2", "b"}, {"task-1", "a"}, {"task-0", "b"}, {"alone", ""}};
  for (const auto& [name, node] : tasks) callers.push_back(world.call(name, HVD_VERSION, node));
  REQUIRE(world.gathering->wait(Millis(20000), [](const std::string&) {}).is_ok());
  std::string order;
  for (const CalledHost& host : world.gathering->hosts()) order += host.name + "/" + host.node + " ";
  CHECK(order == "alone/ task-0/b task-2/b task-10/b task-1/a ");
}

TEST_CASE("a crowd that says nothing does not keep out a host of the same source", "[unit][join]") {
  Fixture world(1);
  const auto host = world.call("n1");
  host->waits = true;
  REQUIRE(world.until([&] { return host->link->proven(); }));  // it is known there, and has still to ask
  std::vector<Fd> crowd;
  for (int i = 0; i < 60; ++i) crowd.push_back(connect_to(world.gathering->address()));
  // So many have no place: the first had to go.
  REQUIRE(world.until([&] { return is_closed_by_peer(crowd[20]); }));
  host->link->write(encode(JoinRequest{.version = HVD_VERSION, .name = "n1"}));
  REQUIRE(world.until([&] { return host->verdict.accepted || !host->link->end().empty(); }));
  CHECK(host->verdict.accepted);
}

TEST_CASE("a gathering that is not complete in time says who has come, and who could not prove it", "[unit][join]") {
  Fixture world(3);
  const auto one = world.call("n7");
  const auto gone = world.call("n8");
  const auto other = std::make_unique<Caller>(world.loop, world.gathering->address(), crypto::Secret::random(),
                                              JoinRequest{.version = HVD_VERSION, .name = "n9"});
  REQUIRE(world.until([&] { return gone->verdict.accepted && one->verdict.accepted; }));
  gone->link->close();
  Status status;
  REQUIRE(world.until([&] {
    status = world.gathering->wait(Millis(1), [](const std::string&) {});
    return status.message().find("1 connection did not") != std::string::npos &&
           status.message().find("n8") == std::string::npos;
  }));
  CHECK(status.code() == StatusCode::kTimeout);
  CHECK(
      status.message().starts_with("after 0 s (--start-timeout) 1 of 3 hosts have joined (n7); "
                                   "1 connection did not have the token, the last from 127.0.0.1; each calls"));
}

TEST_CASE("who listens at all addresses is called by the name of the node", "[unit][join]") {
  MainLoop loop;
  utsname node = {};
  REQUIRE(::uname(&node) == 0);
  for (const char* all : {"0.0.0.0", "127.0.0.1"}) {
    const auto opened = HostGathering::open(loop, {.hosts = 1, .listen_address = all, .port = 0, .token_file = "t"},
                                            false, crypto::Secret::random());
    REQUIRE(opened.is_ok());
    const std::string& address = opened.value()->address();
    CHECK(address.starts_with(all));
    const std::string name = std::string(all) == "0.0.0.0" ? node.nodename : all;
    CHECK(opened.value()
              ->wait(Millis(1), [](const std::string&) {})
              .message()
              .ends_with("each calls `horovodrun --join " + name + address.substr(address.rfind(':')) + "`"));
  }
}

TEST_CASE("a place to listen that is none is an error", "[unit][join]") {
  MainLoop loop;
  for (const char* bad : {"localhost", "192.0.2.77", "x"}) {
    const auto opened = HostGathering::open(loop, {.hosts = 1, .listen_address = bad, .port = 0, .token_file = "t"},
                                            false, crypto::Secret::random());
    REQUIRE_FALSE(opened.is_ok());
    CHECK(opened.status().message().find(bad) != std::string::npos);
  }
}

TEST_CASE("to an elastic job hosts come and go as long as it runs", "[unit][join]") {
  Fixture world(1, true);
  const auto names = [&] {
    std::string all;
    for (const CalledHost& host : world.gathering->hosts()) all += host.name + " ";
    return all;
  };
  const auto first = world.call("n1");
  REQUIRE(world.gathering->wait(Millis(20000), [](const std::string&) {}).is_ok());
  world.gathering->begin();
  std::string last;
  world.gathering->watch([&] { last = names(); });
  auto link = world.gathering->take("n1");
  REQUIRE(link);
  // Others come, and one of them leaves before anybody has a use for it.
  const auto second = world.call("n2");
  const auto third = world.call("n3");
  REQUIRE(world.until([&] { return last == "n1 n2 n3 "; }));
  second->link->close();
  REQUIRE(world.until([&] { return last == "n1 n3 "; }));
  CHECK(world.gathering->take("n2") == nullptr);
  // One of a job's comes back, once the job has let it go.
  CHECK(world.refused("n1", "has joined already, from 127.0.0.1"));
  first->link->close();
  REQUIRE(world.until([&] { return !link->end().empty(); }));
  CHECK(world.refused("n1", "has joined already, from 127.0.0.1"));
  world.gathering->let_go("n1");
  CHECK(last == "n3 ");
  world.gathering->let_go("n3");  // it was not taken
  const auto again = world.call("n1");
  REQUIRE(world.until([&] { return last == "n1 n3 "; }));
  CHECK(world.gathering->take("n1") != nullptr);
  const auto useless = world.call("n5");
  REQUIRE(world.until([&] { return last == "n1 n3 n5 "; }));
  world.gathering->turn_away("n5");
  CHECK(last == "n1 n3 ");
  REQUIRE(world.until([&] { return !useless->link->end().empty(); }));
  // Who waits is told that the job is over.
  std::string word;
  third->link->take_over({.on_proven = {},
                          .on_record = [&](ByteSpan bytes) { word = std::string(as_text(bytes)); },
                          .on_end = {},
                          .on_progress = {}});
  world.gathering->end();
  CHECK(world.until([&] { return word == kJobIsOver && !third->link->end().empty(); }));
  CHECK(world.refused("n4", "the job has ended"));
}
