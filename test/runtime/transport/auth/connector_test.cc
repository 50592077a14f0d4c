#include "runtime/transport/auth/connector.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <future>

#include "runtime/base/socket_io.h"

using namespace hvd;
using namespace hvd::transport;

namespace {

constexpr Millis kLimit{30};

// Listens on a port of the loopback address.
struct Door {
  Fd fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Endpoint endpoint;

  Door() {
    sockaddr_storage raw{};
    socklen_t size = SocketAddress::loopback(0).to_sockaddr(raw);
    REQUIRE(bind(fd.get(), reinterpret_cast<const sockaddr*>(&raw), size) == 0);
    REQUIRE(listen(fd.get(), 100) == 0);
    REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&raw), &size) == 0);
    endpoint = {SocketAddress::from_sockaddr(reinterpret_cast<const sockaddr*>(&raw)).value(), "lo"};
  }

  Fd accept_one(Deadline deadline) const {
    pollfd entry{fd.get(), POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(deadline.remaining().count())) <= 0) return Fd();
    return Fd(accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
};

// Reads what the handshake wants next and gives it that.
bool feed(int fd, AcceptorHandshake& handshake, Deadline deadline) {
  Bytes input(handshake.wanted());
  if (!receive_exactly(fd, input, deadline, -1).is_ok()) return false;
  handshake.feed(input);
  return !handshake.failed();
}

bool answer(int fd, AcceptorHandshake& handshake, Deadline deadline) {
  const Bytes output = handshake.take_output();
  return send_all(fd, output, deadline, -1).is_ok();
}

struct Outcome {
  int told = 0;         // connections whose handshake lacked the welcome only
  bool stayed = false;  // the connector waited for the welcome of the last of them
  bool welcomed = false;
};

// A rank that makes up its mind late, at the welcome.
Outcome welcome_late(const Door& door, const AcceptorIdentity& identity, Deadline deadline) {
  Outcome outcome;
  while (!outcome.welcomed) {
    const Fd fd = door.accept_one(deadline);
    if (!fd.valid()) break;
    AcceptorHandshake handshake(crypto::random_nonce<Nonce>());
    bool good = true;
    while (good && !handshake.needs_identity()) good = feed(fd.get(), handshake, deadline);
    if (good) handshake.admit(identity);
    good = good && !handshake.failed() && answer(fd.get(), handshake, deadline);
    while (good && !handshake.done()) good = feed(fd.get(), handshake, deadline);
    if (!good) continue;  // an attempt that took too long before that, on a busy machine
    ++outcome.told;
    pollfd entry{fd.get(), POLLIN | POLLRDHUP, 0};
    outcome.stayed = poll(&entry, 1, static_cast<int>(10 * kLimit.count())) == 0;
    outcome.welcomed = outcome.stayed && answer(fd.get(), handshake, deadline);
  }
  return outcome;
}

Hello hello_of_rank_1() {
  Hello hello;
  hello.kind = ConnectionKind::kData;
  hello.from_rank = 1;
  hello.to_rank = 0;
  hello.epoch = 1;
  return hello;
}

}  // namespace

TEST_CASE("The limit of an attempt ends a silent one, and none whose peer has been told all", "[multi][transport]") {
  const crypto::Secret key = crypto::Secret::random();
  const AcceptorIdentity identity{.epoch = 1, .rank = 0, .size = 2, .control_key = key, .data_key = key};
  const Deadline deadline = Deadline::after(Millis(20000));
  const Door silent;
  const Door late;
  const HostIdentity here = HostIdentity::of_this_process();
  const AddressRow row{.host = here, .endpoints = {silent.endpoint, late.endpoint}};
  auto outcome = std::async(std::launch::async, [&] { return welcome_late(late, identity, deadline); });
  const Cancel cancel;
  const auto stream = Connector(here, cancel, kLimit).connect(row, hello_of_rank_1(), key, deadline);
  INFO(stream.status().message());
  CHECK(stream.is_ok());
  CHECK(silent.accept_one(Deadline::after(Millis(0))).valid());  // it came first, and was given up
  const Outcome seen = outcome.get();
  CHECK(seen.told == 1);
  CHECK(seen.stayed);
  CHECK(seen.welcomed);
}

TEST_CASE("An address that takes no connection costs a part of an attempt", "[multi][transport]") {
  const crypto::Secret key = crypto::Secret::random();
  const AcceptorIdentity identity{.epoch = 1, .rank = 0, .size = 2, .control_key = key, .data_key = key};
  const Millis all{16000};
  // A listener whose queue is full drops what comes: nothing is ever heard of it.
  const Door full;
  REQUIRE(listen(full.fd.get(), 0) == 0);
  const Cancel cancel;
  std::vector<ForkFd> crowd;
  for (int refused = 0; refused < 3;) {  // once may be a thread that had no processor for so long
    auto one = connect_stream(full.endpoint.address, Deadline::after(Millis(200)), cancel);
    refused = one.is_ok() ? 0 : refused + 1;
    if (one.is_ok()) crowd.push_back(std::move(one).value());
    REQUIRE(crowd.size() < 100);
  }
  const Door late;
  const Deadline deadline = Deadline::after(all);
  const HostIdentity here = HostIdentity::of_this_process();
  const AddressRow row{.host = here, .endpoints = {full.endpoint, late.endpoint}};
  auto outcome = std::async(std::launch::async, [&] { return welcome_late(late, identity, deadline); });
  // An attempt that took its whole limit would take all the time there is.
  const auto stream = Connector(here, cancel, all).connect(row, hello_of_rank_1(), key, deadline);
  INFO(stream.status().message());
  CHECK(stream.is_ok());
  CHECK(outcome.get().welcomed);
}
