#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/elastic/ranking.h"
#include "launcher/hosts/host_spec.h"
#include "launcher/job/seat_plan.h"
#include "rendezvous/kv/plan.h"

namespace hvd::launcher {

// An elastic job's plan for the rendezvous server: it holds a round open until the job has offered one, and all of its
// members wait. It decides nothing but who is rank 0: the member whose training has come furthest. Made by the
// ElasticDriver, shared with the server; thread-safe.
class ElasticPlan final : public rendezvous::Plan {
 public:
  // Called on the server's thread.
  struct Events {
    // Once for each time that it comes to wait.
    std::function<void(rendezvous::Incarnation, std::uint64_t progress)> on_waiting;
    std::function<void(const std::map<int, Placement>&)> on_began;  // the offer was taken
  };
  ElasticPlan(int max_ranks, int spares, std::shared_ptr<const CurrentSeats> seats, Events events)
      : max_ranks_(max_ranks), spares_(spares), seats_(std::move(seats)), events_(std::move(events)) {}

  // The next round. The server has to be asked to reconsider after that.
  void offer(std::vector<HostSlots> hosts);
  // False: it was taken.
  bool withdraw();

  int max_slots() const override { return max_ranks_ + spares_; }
  Status admit(const rendezvous::Seat& seat, const rendezvous::RankNumbers& environment) const override;
  Result<rendezvous::Round> decide(const rendezvous::Waiting& waiting) override;
  std::string describe_missing(const rendezvous::Waiting& waiting, const std::set<int>& seen) const override;

 private:
  std::map<int, Placement> take_offer(const rendezvous::Waiting& waiting);

  const int max_ranks_;
  const int spares_;
  const std::shared_ptr<const CurrentSeats> seats_;
  const Events events_;
  mutable std::mutex mutex_;
  std::optional<std::vector<HostSlots>> offer_;
  std::map<int, std::uint32_t> reported_;  // by slot: the process that is known to wait
};

}  // namespace hvd::launcher
