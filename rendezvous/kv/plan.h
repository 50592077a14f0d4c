#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/protocol/bodies.h"
#include "rendezvous/protocol/limits.h"
#include "runtime/base/status.h"

namespace hvd::rendezvous {

// The processes that wait to join, by slot, with what each has sent.
using Waiting = std::map<int, JoinBody>;
// Which of them form the next epoch, by slot, and the numbers of each in it. Empty: nobody yet.
using Round = std::map<int, RankNumbers>;

// Who may join a job and when an epoch begins: what the launcher knows and the store does not. A static job has the
// table below; an elastic one decides rounds. Called on the server's thread only, and must not block there; whoever
// shares the plan with another thread makes it thread-safe.
class Plan {
 public:
  virtual ~Plan() = default;

  // The most slots that can wait at once. Constant: the server's bounds follow from it.
  virtual int max_slots() const = 0;
  // Whether the process in this seat, with these numbers in its environment, may wait for a round at all; the error is
  // for it alone. Asked when it comes, and after Server::reconsider().
  virtual Status admit(const Seat& seat, const RankNumbers& environment) const = 0;
  // Called when another process has begun to wait, and after Server::reconsider(). The ranks of a round are 0 to its
  // size - 1. An error ends the round: all who wait get it.
  virtual Result<Round> decide(const Waiting& waiting) = 0;
  // Who is missing, for people. `seen`: slots that have joined since the last epoch, whether they still wait or not.
  virtual std::string describe_missing(const Waiting& waiting, const std::set<int>& seen) const = 0;
};

// The plan of a job whose ranks are known before it starts: slot i has the numbers `slots[i]` in every epoch, and an
// epoch begins when all slots wait. What a process has in its environment must agree, else it is refused with an error
// that names both values. Immutable.
class StaticPlan final : public Plan {
 public:
  explicit StaticPlan(std::vector<RankNumbers> slots) : slots_(std::move(slots)) {}
  // For starters that know the number of processes and nothing of hosts: slot i is rank i.
  static std::shared_ptr<Plan> of_size(int size);

  int max_slots() const override { return static_cast<int>(slots_.size()); }
  Status admit(const Seat& seat, const RankNumbers& environment) const override;
  Result<Round> decide(const Waiting& waiting) override;
  std::string describe_missing(const Waiting& waiting, const std::set<int>& seen) const override;

 private:
  const std::vector<RankNumbers> slots_;
};

}  // namespace hvd::rendezvous
