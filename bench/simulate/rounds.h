#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/simulate/virtual_job.h"

namespace hvd::simulate {

// What a round of negotiation has cost.
struct RoundCost {
  std::string name;
  std::uint64_t most_messages = 0;  // of one rank, sent and received
  std::uint64_t most_bytes = 0;     // the same
  Nanoseconds most_work{};          // of one rank
  Nanoseconds root_work{};
  Nanoseconds critical_path{};
};

// Rounds of a training job, one after another: all ranks submit all tensors. `ranks` at least 2.
class Rounds {
 public:
  Rounds(const negotiation::CoordinatorOptions& options, const Network& network, int tensors);

  RoundCost start();    // what init() negotiates
  RoundCost first();    // nobody knows a name
  RoundCost cached();   // everybody knows all
  RoundCost renamed();  // one name in a hundred is new
  RoundCost shuffled(std::uint64_t seed);
  RoundCost straggler(Nanoseconds late);  // the last rank; counted from then
  RoundCost one();                        // one cached tensor
  RoundCost joined();                     // the last rank joins, the others submit all
  RoundCost join();                       // Requires: joined(). The others join, too

 private:
  using Submit = std::function<void(int rank)>;
  RoundCost round(std::string name, const Submit& submit, std::size_t left = 0);
  wire::Request request(std::size_t tensor) const;
  std::vector<wire::Request> all() const;

  VirtualJob job_;
  std::vector<int> versions_;  // by tensor: which name it has
};

}  // namespace hvd::simulate
