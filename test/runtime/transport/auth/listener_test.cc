// Strangers at a rank's listener.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "runtime/base/fd.h"
#include "runtime/transport/auth/handshake.h"
#include "runtime/transport/net/address_row.h"
#include "test/runtime/transport/gloo_group.h"

using namespace hvd;
using namespace hvd::transport;

namespace {

Fd knock(const Fabric& fabric) {
  const AddressRow row = AddressRow::decode(fabric.address_row()).value();
  sockaddr_storage raw{};
  const socklen_t size = row.endpoints.at(0).address.to_sockaddr(raw);
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(fd.get(), reinterpret_cast<const sockaddr*>(&raw), size) == 0);
  return fd;
}

// What the listener answered until it closed the connection; fails the test when it does not close in time.
Bytes read_until_closed(int fd, Millis limit) {
  Bytes answer;
  const Deadline deadline = Deadline::after(limit);
  for (;;) {
    pollfd entry{fd, POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(deadline.remaining().count())) <= 0) {
      FAIL_CHECK("the connection was not closed in time");
      return answer;
    }
    std::uint8_t buffer[256];
    const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
    if (n <= 0) return answer;
    answer.insert(answer.end(), buffer, buffer + n);
  }
}

Hello hello_of_rank_1() {
  Hello hello;
  hello.kind = ConnectionKind::kData;
  hello.from_rank = 1;
  hello.to_rank = 0;
  hello.epoch = 1;
  return hello;
}

// A hello as anybody can make it.
Bytes unsigned_hello() {
  Bytes bytes = hello_of_rank_1().encode();
  bytes.insert(bytes.end(), 32, 0x55);
  return bytes;
}

void receive_from_rank_1(Fabric& fabric) {
  auto context = fabric.make_context(1, {0, 1}).value();
  std::uint32_t value = 0;
  auto buffer = context->createUnboundBuffer(&value, sizeof(value));
  buffer->recv(1, 1);
  buffer->waitRecv();
}

void send_to_rank_0(Fabric& fabric) {
  auto context = fabric.make_context(1, {0, 1}).value();
  std::uint32_t value = 1;
  auto buffer = context->createUnboundBuffer(&value, sizeof(value));
  buffer->send(0, 1);
  buffer->waitSend();
}

std::vector<Bytes> garbage() {
  const Bytes good = unsigned_hello();
  std::vector<Bytes> all;
  const auto text = [&](std::string_view t) { all.emplace_back(t.begin(), t.end()); };
  const auto patched = [&](std::size_t at, std::uint8_t value) {
    all.push_back(good);
    all.back()[at] = value;
  };
  text("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  text("SSH-2.0-OpenSSH_9.2p1 Debian\r\n");
  text(std::string(12, '\0'));
  text(std::string(48, '\xff'));
  text(std::string(100000, 'A'));
  text(std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello", 23));
  text("HVDXPOR!HVDXPOR!");
  patched(8, 2);      // protocol version
  patched(10, 0);     // kind
  patched(10, 9);     // kind
  patched(11, 1);     // reserved
  patched(15, 0x80);  // an impossible rank
  patched(12, 0);     // from itself
  patched(12, 5);     // from a rank beyond the size
  patched(16, 1);     // to another rank
  patched(20, 7);     // epoch
  all.push_back(good);
  // A good hello that somebody recorded, then no key: garbage instead of the MAC.
  all.push_back(ConnectorHandshake(hello_of_rank_1(), test::test_secret().derive("data", 1)).take_output());
  all.back().insert(all.back().end(), 32, 0x55);
  return all;
}

}  // namespace

TEST_CASE("Garbage sent to a listener ends that connection and disturbs nobody", "[multi][transport]") {
  test::GlooRanks ranks("hvd", 2);
  Fabric& target = *ranks.group().fabrics[0];
  const auto work = [&] {
    ranks.run([](int rank, const std::shared_ptr<gloo::Context>& context) {
      std::vector<std::uint8_t> memory(300000, static_cast<std::uint8_t>(rank));
      auto buffer = context->createUnboundBuffer(memory.data(), memory.size());
      rank == 0 ? buffer->send(1, 1) : buffer->recv(0, 1);
      rank == 0 ? buffer->waitSend() : buffer->waitRecv();
      if (memory[1000] != 0) throw std::runtime_error("wrong bytes");
    });
  };
  work();
  for (const Bytes& payload : garbage()) {
    INFO(to_hex(ByteSpan(payload).first(std::min<std::size_t>(payload.size(), 24))));
    const Fd fd = knock(target);
    send(fd.get(), payload.data(), payload.size(), MSG_NOSIGNAL);
    const Bytes answer = read_until_closed(fd.get(), Millis(2000));
    // A refusal, or the challenge that a good hello gets; never more.
    CHECK((answer.size() <= 1 || answer.size() == 65));
    work();
  }
}

TEST_CASE("A crowd of silent connections neither stays nor keeps a rank from connecting", "[multi][transport]") {
  test::FabricGroup group(2);
  std::vector<Fd> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(knock(*group.fabrics[0]));
  const auto errors = test::run_all({
      [&] { receive_from_rank_1(*group.fabrics[0]); },
      [&] { send_to_rank_0(*group.fabrics[1]); },
  });
  CHECK(errors == std::vector<std::string>{"", ""});
  for (const Fd& fd : idle) CHECK(read_until_closed(fd.get(), Millis(2000)).size() <= 1);
}

TEST_CASE("Hellos that anybody can make, waiting for a session, do not keep a rank from connecting",
          "[multi][transport]") {
  test::ClosedFabrics group(2);
  const Bytes hello = unsigned_hello();
  std::vector<Fd> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(knock(*group.fabrics[0]));
    send(crowd.back().get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  }
  // The oldest had to make room: hellos that wait are bounded.
  CHECK(read_until_closed(crowd.front().get(), Millis(2000)) == Bytes{static_cast<std::uint8_t>(Refusal::kBusy)});
  REQUIRE(group.fabrics[1]->open(1, test::test_secret(), group.rows).is_ok());
  const auto errors = test::run_all({
      [&] { send_to_rank_0(*group.fabrics[1]); },
      [&] {
        if (!group.fabrics[0]->open(1, test::test_secret(), group.rows).is_ok()) throw std::runtime_error("open");
        receive_from_rank_1(*group.fabrics[0]);
      },
  });
  CHECK(errors == std::vector<std::string>{"", ""});
  CHECK(read_until_closed(crowd.back().get(), Millis(2000)) == Bytes{static_cast<std::uint8_t>(Refusal::kSecret)});
}

TEST_CASE("Every socket of a fabric is closed on exec", "[multi][transport]") {
  test::GlooRanks ranks("hvd", 3);
  int sockets = 0;
  for (int fd = 3; fd < 1024; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    sockaddr_storage raw{};
    socklen_t size = sizeof(raw);
    if (flags < 0 || getsockname(fd, reinterpret_cast<sockaddr*>(&raw), &size) != 0) continue;
    ++sockets;
    CHECK((flags & FD_CLOEXEC) != 0);
  }
  CHECK(sockets >= 3);
}
