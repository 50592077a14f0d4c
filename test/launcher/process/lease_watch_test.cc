#include "launcher/process/lease_watch.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <vector>

using namespace hvd;
using namespace hvd::launcher;

namespace {

struct Outcome {
  std::size_t signs = 0;
  bool lost = false;
};

// What a watch does when the kernel gives these answers, and no other after them.
Outcome watch(const std::vector<Result<LinkState>>& answers) {
  MainLoop loop;
  Outcome outcome;
  std::size_t asked = 0;
  const auto callbacks = LeaseWatch::Callbacks{.send_sign =
                                                   [&] {
                                                     ++outcome.signs;
                                                     if (asked == answers.size()) loop.stop();
                                                   },
                                               .on_lost =
                                                   [&] {
                                                     outcome.lost = true;
                                                     loop.stop();
                                                   },
                                               .ask = [&](const SshLink&) { return answers[asked++]; }};
  const LeaseWatch lease(loop, "10.0.0.1 50000 10.0.0.2 22", std::nullopt, callbacks, Millis(1));
  loop::Timer deadline(loop.get(), [&] { loop.stop(); });
  deadline.start(Millis(10000));
  loop.run();
  return outcome;
}

const LinkState kAlive{.waiting_for_ack = false, .since_last_ack = Millis(60000)};
const LinkState kWaits{.waiting_for_ack = true, .since_last_ack = LeaseWatch::kSilence - Millis(1)};
const LinkState kSilent{.waiting_for_ack = true, .since_last_ack = LeaseWatch::kSilence};

}  // namespace

TEST_CASE("LeaseWatch gives up on silence, and not on a kernel that does not answer", "[unit][process]") {
  const Status busy = Status::from_errno("sock_diag", EAGAIN);
  const Status none = Status::peer_lost("no such connection");
  SECTION("silence") {
    const Outcome outcome = watch({kAlive, kWaits, kSilent});
    CHECK(outcome.lost);
    CHECK(outcome.signs == 2);
  }
  SECTION("an error now is no error later") {
    const Outcome outcome = watch({busy, busy, kAlive, busy, kSilent});
    CHECK(outcome.lost);
    CHECK(outcome.signs == 4);
  }
  SECTION("a connection that was there and is gone") {
    CHECK_FALSE(watch({kAlive, none, kAlive, none}).lost);
    const Outcome outcome = watch({kAlive, none, none});
    CHECK(outcome.lost);
    CHECK(outcome.signs == 2);
  }
  SECTION("one that was never seen from here") {
    const Outcome outcome = watch({none, none, none});
    CHECK_FALSE(outcome.lost);
    CHECK(outcome.signs == 3);
  }
}
