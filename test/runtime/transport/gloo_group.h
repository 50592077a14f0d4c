#pragma once

#include <gloo/context.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "test/runtime/transport/fabric_group.h"

namespace hvd::test {

// Runs all functions on a thread each; yields what each threw, "" for nothing.
inline std::vector<std::string> run_all(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::string> errors(bodies.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        bodies[i]();
      } catch (const std::exception& e) {
        errors[i] = e.what();
        if (errors[i].empty()) errors[i] = "unknown";
      }
    });
  }
  threads.clear();
  return errors;
}

// On a rank's thread, where CHECK may not be used: run_all() yields `what`.
inline void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

// One Gloo context per rank, over our transport ("hvd", "hvd-tls") or Gloo's own ("tcp"): the same cases run on all.
class GlooRanks {
 public:
  using Body = std::function<void(int rank, const std::shared_ptr<gloo::Context>& context)>;

  GlooRanks(const std::string& stack, int size) : contexts_(static_cast<std::size_t>(size)) {
    if (stack != "tcp") {
      group_ = std::make_unique<FabricGroup>(size, 1, Millis(10000), stack == "hvd-tls");
      std::vector<int> all;
      for (int rank = 0; rank < size; ++rank) all.push_back(rank);
      for (std::size_t rank = 0; rank < contexts_.size(); ++rank) {
        contexts_[rank] = group_->fabrics[rank]->make_context(1, all).value();
      }
      return;
    }
    store_ = std::make_unique<gloo::rendezvous::HashStore>();
    run([&](int rank, const std::shared_ptr<gloo::Context>&) {
      gloo::transport::tcp::attr attributes;
      attributes.hostname = "127.0.0.1";
      attributes.ai_family = AF_INET;
      auto context = std::make_shared<gloo::rendezvous::Context>(rank, static_cast<int>(contexts_.size()));
      auto device = gloo::transport::tcp::CreateDevice(attributes);
      context->connectFullMesh(*store_, device);
      contexts_[static_cast<std::size_t>(rank)] = context;
    });
  }
  ~GlooRanks() {
    for (auto& context : contexts_) context.reset();
  }

  // One thread per rank; fails the test with what each threw.
  void run(const Body& body) {
    std::vector<std::function<void()>> bodies;
    for (std::size_t rank = 0; rank < contexts_.size(); ++rank) {
      bodies.emplace_back([&, rank] { body(static_cast<int>(rank), contexts_[rank]); });
    }
    const auto errors = run_all(bodies);
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      INFO("rank " << rank);
      CHECK(errors[rank] == "");
    }
  }
  std::shared_ptr<gloo::Context>& context(int rank) { return contexts_[static_cast<std::size_t>(rank)]; }
  FabricGroup& group() { return *group_; }

 private:
  std::unique_ptr<FabricGroup> group_;
  std::unique_ptr<gloo::rendezvous::HashStore> store_;
  std::vector<std::shared_ptr<gloo::Context>> contexts_;
};

inline void each_stack(const std::function<void(const std::string&)>& body) {
  for (const std::string stack : {"hvd", "hvd-tls", "tcp"}) {
    INFO("stack " << stack);
    body(stack);
  }
}

}  // namespace hvd::test
