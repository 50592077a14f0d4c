// Negotiation at scale, in one process: the root and every relay of a job's control tree are real, the leaves are
// written reports. Prints processor time and bytes, which a busy machine does not change much. negotiation_bench [ranks
// [tensors]]
#include <ctime>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/relay.h"
#include "runtime/wire/codec.h"

namespace {

using namespace hvd;

double cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// What one node did in one round.
struct Cost {
  double seconds = 0;
  std::size_t messages = 0;
  std::size_t bytes = 0;
};

class Job {
 public:
  Job(int ranks, int tensors) : plan_(ranks), bits_(static_cast<std::size_t>(tensors)), names_(bits_.size()) {
    negotiation::CoordinatorOptions options;
    options.size = ranks;
    coordinator_ = std::make_unique<negotiation::Coordinator>(options);
    const topology::ProcessSetTable sets(ranks);
    for (int rank = 1; rank < ranks && !plan_.children(rank).empty(); ++rank) {
      relays_.push_back(std::make_unique<negotiation::Relay>(plan_, rank, sets));
    }
    for (std::size_t i = 0; i < names_.size(); ++i) rename(i, 0);
  }

  // The tensor gets a name that no rank has cached.
  void rename(std::size_t i, int round) {
    names_[i] = "allreduce.module.layer" + std::to_string(i) + ".weight/" + std::to_string(round);
    bits_[i] = wire::CacheBit::kNone;
  }
  std::size_t tensors() const { return names_.size(); }

  // Every rank reports every tensor, and the decisions travel down.
  void round(const char* name) {
    root_ = relay_ = down_ = {};
    const double start = cpu_seconds();
    for (int rank = plan_.size() - 1; rank > 0; --rank) {
      wire::Report report = report_of(rank);
      if (negotiation::Relay* relay = relay_of(rank)) {
        check(relay->add_report(rank, std::move(report), SteadyClock::now()));
        drain(rank, *relay);
      } else {
        send_up(rank, wire::encode(report));
      }
    }
    const double before = cpu_seconds();
    check(coordinator_->add_report(0, report_of(0), SteadyClock::now()));
    root_.seconds += cpu_seconds() - before;
    std::size_t released = 0;
    while (decide(released)) {
    }
    HVD_CHECK(released == names_.size(), "not every tensor was released");
    std::printf("%-28s %10.2f %9zu %12zu %12.2f %12zu %12zu %10.2f\n", name, root_.seconds * 1e3, root_.messages,
                root_.bytes, relay_.seconds * 1e3, relay_.bytes, down_.bytes, cpu_seconds() - start);
  }

  // Process sets of eight ranks each, given to init() by all ranks; only the root's side of it.
  void add_sets(int count) {
    wire::SetChange change;
    change.kind = wire::SetChange::Kind::kStatic;
    for (int first = 0; first < 8 * count; first += 8) {
      change.rank_lists.emplace_back();
      for (int rank = first; rank < first + 8; ++rank) change.rank_lists.back().push_back(rank);
      change.digests.push_back(wire::digest_of(change.rank_lists.back()));
    }
    const auto ask = [&](int from, wire::RankRuns ranks) {
      wire::Report report;
      change.rank = from;
      report.set_changes = {change};
      report.set_changes.front().ranks = std::move(ranks);
      check(coordinator_->add_report(from, report, SteadyClock::now()));
    };
    ask(0, {{0, 1, 0}});
    for (const int child : plan_.children(0)) {
      wire::RankRuns below;
      for (int rank = child; rank < plan_.size(); ++rank) {
        if (plan_.in_subtree(child, rank)) HVD_CHECK(wire::merge_runs(below, {{rank, 1, 0}}), "ranks are different");
      }
      ask(child, std::move(below));
    }
    while (coordinator_->step(SteadyClock::now())) {
    }
  }

  // One cached tensor after the other; the root alone.
  void steps(const char* name, int count) {
    root_ = {};
    const std::vector<int> children = plan_.children(0);
    wire::Report report;
    report.ready_bits = {bits_.at(0)};
    const Bytes message = wire::encode(report);
    for (int i = 0; i < count; ++i) {
      const double start = cpu_seconds();
      for (const int child : children) {
        check(coordinator_->add_report(child, wire::decode_report(message).value(), SteadyClock::now()));
      }
      check(coordinator_->add_report(0, report, SteadyClock::now()));
      const auto decision = coordinator_->step(SteadyClock::now());
      HVD_CHECK(decision && wire::encode(*decision).size() > 0, "the tensor was not released");
      coordinator_->on_batch_done(kGlobalProcessSet);
      while (coordinator_->step(SteadyClock::now())) {
      }
      (void)coordinator_->next_deadline();
      root_.seconds += cpu_seconds() - start;
    }
    std::printf("%-28s %10.2f us a step\n", name, root_.seconds / count * 1e6);
  }

 private:
  static void check(const Status& status) { HVD_CHECK(status.is_ok(), status.to_string().c_str()); }

  negotiation::Relay* relay_of(int rank) {
    const auto i = static_cast<std::size_t>(rank) - 1;
    return rank > 0 && i < relays_.size() ? relays_[i].get() : nullptr;
  }

  wire::Report report_of(int rank) const {
    wire::Report report;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (bits_[i] != wire::CacheBit::kNone) {
        report.ready_bits.push_back(bits_[i]);
        continue;
      }
      wire::Request request;
      request.rank = rank;
      request.name = names_[i];
      request.shape = {512, 512, 3, 3};
      report.requests.push_back(std::move(request));
    }
    return report;
  }

  void drain(int rank, negotiation::Relay& relay) {
    while (relay.has_report(SteadyClock::now())) send_up(rank, wire::encode(relay.take_report(SteadyClock::now())));
  }

  void send_up(int rank, const Bytes& message) {
    const int parent = plan_.parent(rank);
    const double start = cpu_seconds();
    if (parent == 0) {
      check(coordinator_->add_report(rank, wire::decode_report(message).value(), SteadyClock::now()));
      account(root_, start, message.size());
      return;
    }
    negotiation::Relay& relay = *relay_of(parent);
    check(relay.add_report(rank, wire::decode_report(message).value(), SteadyClock::now()));
    std::vector<Bytes> out;
    while (relay.has_report(SteadyClock::now())) out.push_back(wire::encode(relay.take_report(SteadyClock::now())));
    if (parent == 1) account(relay_, start, message.size());
    for (const Bytes& bytes : out) send_up(parent, bytes);
  }

  static void account(Cost& cost, double start, std::size_t bytes) {
    cost.seconds += cpu_seconds() - start;
    ++cost.messages;
    cost.bytes += bytes;
  }

  bool decide(std::size_t& released) {
    const double start = cpu_seconds();
    const auto decision = coordinator_->step(SteadyClock::now());
    if (!decision) return false;
    const Bytes bytes = wire::encode(*decision);
    root_.seconds += cpu_seconds() - start;
    down_.bytes += bytes.size();
    ++down_.messages;
    for (const auto& relay : relays_) check(relay->on_decision(*decision));
    for (const wire::DecisionItem& item : decision->items) {
      if (const auto* response = std::get_if<wire::Response>(&item)) {
        for (std::size_t i = 0; i < names_.size(); ++i) {
          if (names_[i] == response->name) bits_[i] = response->bit;
        }
        ++released;
      }
      if (std::holds_alternative<wire::CacheHit>(item)) ++released;
    }
    coordinator_->on_batch_done(kGlobalProcessSet);
    return true;
  }

  topology::TreePlan plan_;
  std::unique_ptr<negotiation::Coordinator> coordinator_;
  std::vector<std::unique_ptr<negotiation::Relay>> relays_;  // of the ranks 1, 2, ... that have children
  std::vector<wire::CacheBit> bits_;                         // per tensor
  std::vector<std::string> names_;
  Cost root_;
  Cost relay_;  // rank 1
  Cost down_;   // from the root to one child
};

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 27360;
  const int tensors = argc > 2 ? std::atoi(argv[2]) : 161;
  Job job(ranks, tensors);
  std::printf("%d ranks, %d tensors\n%-28s %10s %9s %12s %12s %12s %12s %10s\n", ranks, tensors, "round", "root ms",
              "messages", "bytes", "rank 1 ms", "bytes", "bytes down", "all s");
  job.round("first");
  job.round("cached");
  job.round("cached again");
  for (std::size_t i = 50; i < job.tensors(); i += 100) job.rename(i, 1);
  job.round("one new name in a hundred");
  job.steps("one cached tensor", 1000);
  job.add_sets(100);
  job.steps("beside 100 process sets", 1000);
  return 0;
}
