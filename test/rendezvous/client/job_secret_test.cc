#include "rendezvous/client/agent_client.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <tuple>

#include "rendezvous/protocol/agent_socket.h"
#include "runtime/base/socket_io.h"
#include "test/rendezvous/support/job.h"
#include "test/support/other_user.h"

using namespace hvd;
using namespace hvd::rendezvous;
using test::soon;

namespace {

std::string new_name() {
  std::array<std::uint8_t, kAgentSocketRandomBytes> random{};
  crypto::random_bytes(random);
  return std::string(kAgentSocketPrefix) + to_hex(random);
}

// An agent that gives one fixed answer to one rank.
class FakeAgent {
 public:
  explicit FakeAgent(Bytes answer)
      : answer_(std::move(answer)), listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), name_(new_name()) {
    const AbstractAddress address(name_);
    REQUIRE(bind(listener_.get(), address.get(), address.size()) == 0);
    REQUIRE(listen(listener_.get(), 4) == 0);
    thread_ = std::thread([this] {
      const Fd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      request_.resize(kAgentRequestBytes);
      if (!read_exactly(peer.get(), request_.data(), request_.size()).is_ok()) return;
      std::ignore = write_all(peer.get(), answer_.data(), answer_.size());
    });
  }
  ~FakeAgent() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  const std::string& name() const { return name_; }
  std::string_view request() const { return as_text(request_); }

 private:
  Bytes answer_;
  Bytes request_;
  Fd listener_;
  std::string name_;
  std::thread thread_;
};

constexpr Incarnation kProcess{.slot = 7, .number = 2};

Bytes answer_with(std::string_view magic, std::uint8_t outcome, ByteSpan secret) {
  ByteWriter writer;
  writer.put_raw(as_bytes(magic));
  writer.put(outcome);
  writer.put(kProcess.slot);
  writer.put(kProcess.number);
  writer.put_raw(SeatToken{1, 2, 3});
  writer.put_raw(secret);
  return writer.take();
}

}  // namespace

TEST_CASE("A rank gets its slot, its token and the secret from its agent", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  FakeAgent agent(answer_with(kAgentMagic, kAgentAnswerOk, secret.bytes()));
  const auto got = fetch_credentials(agent.name(), soon());
  REQUIRE(got.is_ok());
  CHECK(got.value().seat.process == kProcess);
  CHECK(got.value().seat.token == SeatToken{1, 2, 3});
  CHECK(to_hex(got.value().secret.bytes()) == to_hex(secret.bytes()));
  agent.join();
  CHECK(agent.request() == std::string_view("HVDAGNT3\x01\0\0\0\0", 13));
}

TEST_CASE("What is not an agent gives no secret and an error that names the socket", "[multi][rendezvous]") {
  const auto secret = crypto::Secret::random();
  const auto error_of = [](Bytes answer) {
    FakeAgent agent(std::move(answer));
    const Status error = fetch_credentials(agent.name(), soon()).status();
    CHECK_THAT(error.message(), Catch::Contains(agent.name()));
    return error.message();
  };
  CHECK_THAT(error_of(answer_with("HVDAGNT1", 0, secret.bytes())), Catch::Contains("not an agent"));
  CHECK_THAT(error_of(answer_with(kAgentMagic, 1, secret.bytes())), Catch::Contains("refuses"));
  CHECK_THAT(error_of(answer_with(kAgentMagic, 0, secret.bytes().first(31))), Catch::Contains("closed"));
  CHECK_THAT(error_of({}), Catch::Contains("closed"));
}

TEST_CASE("Another user who listens under the agent's name is not asked", "[multi][rendezvous]") {
  const std::string name = "hvd-agent-0123456789abcdef0123456789abcde" + std::to_string(::getpid() % 10);
  const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const AbstractAddress address(name);
  REQUIRE(bind(listener.get(), address.get(), address.size()) == 0);
  {
    const OtherUser other;
    if (!other.is_there()) return;  // only root can act as another one
    REQUIRE(listen(listener.get(), 4) == 0);
  }
  const std::string why = "the listener runs under uid 65534, this process under uid 0";
  CHECK_THAT(fetch_credentials(name, soon()).status().message(), Catch::Contains(name) && Catch::Contains(why));
  CHECK(report_stall(name, 1).message() == why);
}

TEST_CASE("An agent that is not there, or not named as one, is an error at once", "[multi][rendezvous]") {
  const std::string nobody = "hvd-agent-00000000000000000000000000000000";
  CHECK_THAT(fetch_credentials(nobody, soon()).status().message(),
             Catch::Contains(nobody) && Catch::Contains("connection refused"));
  for (const std::string bad : {"", "hvd-agent-", "/tmp/socket", "hvd-agent-0000000000000000000000000000000g"}) {
    const Status error = fetch_credentials(bad, soon()).status();
    CHECK(error.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(error.message(), Catch::Contains("HOROVOD_AGENT is \"" + bad + "\""));
  }
}

TEST_CASE("An agent that does not answer is an error at the deadline", "[multi][rendezvous]") {
  const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string name = new_name();
  const AbstractAddress address(name);
  REQUIRE(bind(listener.get(), address.get(), address.size()) == 0);
  REQUIRE(listen(listener.get(), 4) == 0);
  CHECK(fetch_credentials(name, Deadline::after(Millis(100))).status().code() == StatusCode::kTimeout);
}
