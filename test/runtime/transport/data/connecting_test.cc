// Connections to several ranks at a time. Ranks that have not opened their session leave whoever connects waiting.
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>

#include "runtime/base/failpoint.h"
#include "runtime/transport/data/gloo_context.h"
#include "runtime/transport/data/operations.h"
#include "test/runtime/transport/gloo_group.h"

using namespace hvd;
using transport::ExpectedMessage;

namespace {

// The last rank, which connects to all others.
struct Connecting : test::ClosedFabrics {
  explicit Connecting(int size, const transport::FabricOptions& options = {})
      : ClosedFabrics(size, options), last(size - 1) {
    open(last);
    for (int peer = 0; peer < last; ++peer) messages.push_back({peer, 1});
  }

  void open(int rank) { REQUIRE(at(rank).open(1, test::test_secret(), rows).is_ok()); }
  transport::Fabric& at(int rank) { return *fabrics[static_cast<std::size_t>(rank)]; }
  std::future<Status> connect() {
    return std::async(std::launch::async, [this] { return at(last).connect_data(messages); });
  }
  // A message from it to the last rank leaves when there is a connection.
  void send_from(int rank) {
    const auto context = at(rank).make_context(static_cast<std::uint64_t>(rank) + 1, {rank, last}).value();
    char byte = 1;
    const auto buffer = context->createUnboundBuffer(&byte, 1);
    buffer->send(1, 1);
    buffer->waitSend();
  }

  int last;
  std::vector<ExpectedMessage> messages;
};

bool is_pending(const std::future<Status>& result) { return result.wait_for(Millis(0)) == std::future_status::timeout; }

}  // namespace

TEST_CASE("A rank connects to one while another keeps it waiting", "[multi][transport]") {
  const int ready = GENERATE(0, 1, 2);
  Connecting ranks(4);
  std::future<Status> connected = ranks.connect();
  ranks.open(ready);
  ranks.send_from(ready);
  CHECK(is_pending(connected));
  for (int other = 0; other < 3; ++other) {
    if (other != ready) ranks.open(other);
  }
  CHECK(connected.get().to_string() == "ok");
}

TEST_CASE("A rank connects to more than it does at a time, and asks the store once", "[multi][transport]") {
  transport::FabricOptions options;
  options.tls = GENERATE(false, true);
  options.sockets = 2;
  Connecting ranks(20, options);
  for (int rank = 0; rank < ranks.last; ++rank) ranks.open(rank);
  ranks.messages[3].bytes = 1U << 20U;  // over two connections
  CHECK(ranks.connect().get().to_string() == "ok");
  CHECK(ranks.rows.requests() == 1);
  CHECK(ranks.connect().get().to_string() == "ok");  // with nothing to do
  CHECK(ranks.rows.requests() == 1);
  for (int rank = 0; rank < ranks.last; ++rank) ranks.send_from(rank);
}

TEST_CASE("The error of several connections names the rank that is gone, its host and its addresses",
          "[multi][transport]") {
  Connecting ranks(4);
  ranks.open(0);
  ranks.open(2);
  ranks.fabrics[1].reset();
  const std::string error = ranks.connect().get().to_string();
  CHECK_THAT(error, Catch::StartsWith("peer lost: data connection: cannot connect to rank 1 on host "));
  CHECK_THAT(error, Catch::Contains("127.0.0.1:"));
  // It is lost for good, and others are not.
  CHECK(ranks.connect().get().to_string() == error);
  ranks.messages = {{0, 1}, {2, 1}};
  CHECK(ranks.connect().get().to_string() == "ok");
  ranks.send_from(0);
  ranks.send_from(2);
}

TEST_CASE("The first error of several connections ends the others, whose ranks are not lost", "[multi][transport]") {
  transport::FabricOptions options;
  options.timeout = Millis(60000);
  Connecting ranks(4, options);
  ranks.fabrics[0].reset();  // the last in the order of the messages
  std::ranges::reverse(ranks.messages);
  const auto begin = std::chrono::steady_clock::now();
  CHECK_THAT(ranks.connect().get().to_string(), Catch::Contains("cannot connect to rank 0 on host "));
  CHECK(std::chrono::steady_clock::now() - begin < options.timeout / 2);
  for (const int rank : {1, 2}) ranks.open(rank);
  ranks.messages.pop_back();
  CHECK(ranks.connect().get().to_string() == "ok");
}

TEST_CASE("Connections of several ranks end by one timeout", "[multi][transport]") {
  transport::FabricOptions options;
  options.timeout = Millis(2000);
  Connecting ranks(40, options);  // more than are tried at a time
  ranks.open(0);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(ranks.connect().get().code() == StatusCode::kTimeout);
  CHECK(std::chrono::steady_clock::now() - begin < 2 * options.timeout);
}

TEST_CASE("Connections of several ranks end by an abort", "[multi][transport]") {
  transport::FabricOptions options;
  options.timeout = Millis(60000);
  Connecting ranks(4, options);
  std::future<Status> connected = ranks.connect();
  ranks.open(0);
  ranks.send_from(0);  // it is at the others, too
  ranks.at(ranks.last).abort(Status::peer_lost("it is over"));
  CHECK(connected.get().code() == StatusCode::kAborted);
}

#ifdef HVD_FAILPOINTS
TEST_CASE("A rank without other threads connects to all, one after another", "[multi][transport]") {
  Connecting ranks(4);
  for (int rank = 0; rank < ranks.last; ++rank) ranks.open(rank);
  const auto before = failpoint::passages("thread.start");
  REQUIRE(failpoint::arm("thread.start=ENOMEM@1+").is_ok());
  CHECK(ranks.at(ranks.last).connect_data(ranks.messages).to_string() == "ok");
  CHECK(failpoint::passages("thread.start") > before);
  REQUIRE(failpoint::arm("").is_ok());
}

TEST_CASE("More connections that cannot be made are done without where their number is tried, else an error",
          "[multi][transport]") {
  const bool is_tried = GENERATE(true, false);
  transport::FabricOptions options;
  options.sockets = is_tried ? 1 : 4;
  Connecting ranks(3, options);
  for (int rank = 0; rank < ranks.last; ++rank) ranks.open(rank);
  if (is_tried) ranks.at(ranks.last).use_sockets(4);
  for (ExpectedMessage& message : ranks.messages) message.bytes = 1U << 20U;
  const auto before = failpoint::passages("data.connect_more");
  REQUIRE(failpoint::arm("data.connect_more=ECONNREFUSED@2+").is_ok());
  const std::string end = ranks.connect().get().to_string();
  CHECK(failpoint::passages("data.connect_more") > before + 1);
  REQUIRE(failpoint::arm("").is_ok());
  if (!is_tried) {
    CHECK_THAT(end, Catch::Contains("refused"));
    return;
  }
  CHECK(end == "ok");
  // Not tried again, so that no message waits for it.
  const auto tried = failpoint::passages("data.connect_more");
  CHECK(ranks.connect().get().to_string() == "ok");
  CHECK(failpoint::passages("data.connect_more") == tried);
  for (int rank = 0; rank < ranks.last; ++rank) ranks.send_from(rank);
}

TEST_CASE("A rank that may do without has several connections to a few others only", "[multi][transport]") {
  Connecting ranks(20);
  for (int rank = 0; rank < ranks.last; ++rank) ranks.open(rank);
  ranks.at(ranks.last).use_sockets(4);
  for (ExpectedMessage& message : ranks.messages) message.bytes = 1U << 20U;
  const auto before = failpoint::passages("data.connect_more");
  REQUIRE(failpoint::arm("data.connect_more=ECONNREFUSED@1000+").is_ok());  // it counts what it is armed for
  CHECK(ranks.connect().get().to_string() == "ok");
  CHECK(failpoint::passages("data.connect_more") == before + 16 * 3);
  REQUIRE(failpoint::arm("").is_ok());
}
#endif
