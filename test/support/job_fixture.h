#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "horovod/session.h"
#include "rendezvous/server/server.h"
#include "runtime/config/runtime_config.h"
#include "runtime/crypto/secret_file.h"
#include "test/support/own_session.h"

namespace hvd::test {

// A job of N ranks as N threads of this process: the real store, transport and sessions over loopback. Owned by a test.
class JobFixture {
 public:
  // Without a plan, slot i is rank i.
  explicit JobFixture(int size, std::shared_ptr<rendezvous::Plan> plan = nullptr, bool tls = false)
      : size_(size), tls_(tls), secret_(crypto::SecretFile::create("/tmp").value()) {
    if (plan == nullptr) plan = rendezvous::StaticPlan::of_size(size);
    rendezvous::ServerOptions options{secret_.secret(), std::move(plan), {"127.0.0.1"}, tls};
    server_ = std::move(rendezvous::Server::start(options)).value();
  }

  config::RuntimeConfig config(int rank) const {
    config::RuntimeConfig c;
    c.rank = c.local_rank = rank;
    c.size = c.local_size = size_;
    c.rendezvous_addr = "127.0.0.1";
    c.rendezvous_port = server_->port();
    c.secret_file = secret_.path();
    c.tls = tls_;
    c.log_level = LogLevel::kFatal;
    return c;
  }

  using RankLists = std::vector<std::vector<int>>;

  // Runs `body` as every rank at once; `edit` may change a rank's configuration, `sets` says which process sets a rank
  // gives at the start. A rank that can't start reports it.
  void run(
      const std::function<void(Session&)>& body,
      const std::function<void(config::RuntimeConfig&)>& edit = [](config::RuntimeConfig&) {},
      const std::function<RankLists(int)>& sets = [](int) { return RankLists(); }) {
    std::vector<std::jthread> ranks;
    errors_.assign(static_cast<std::size_t>(size_), "");
    for (int rank = 0; rank < size_; ++rank) {
      ranks.emplace_back([this, rank, &body, &edit, &sets] {
        config::RuntimeConfig c = config(rank);
        edit(c);
        auto session = Session::start(c, {}, sets(rank));
        if (!session.is_ok()) {
          errors_[static_cast<std::size_t>(rank)] = session.status().to_string();
          return;
        }
        const OwnSession own(*session.value());
        body(*session.value());
        session.value()->shutdown();
      });
    }
    ranks.clear();
  }
  rendezvous::Server& server() { return *server_; }
  // Per rank: why it could not start; "" when it did.
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  int size_;
  bool tls_;
  crypto::SecretFile secret_;
  std::unique_ptr<rendezvous::Server> server_;
  std::vector<std::string> errors_;
};

}  // namespace hvd::test
