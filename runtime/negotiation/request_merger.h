#pragma once

#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"
#include "runtime/negotiation/bit_counter.h"
#include "runtime/wire/messages.h"

namespace hvd::negotiation {

// A relay's requests on their way up. Those of one tensor wait for each other, so that one merged request leaves for
// the whole subtree: the root needs all of them before it can decide anything, so this delays nothing. They leave
// earlier when they have waited for kHold (the stall inspector has to learn who waits), when a member of their set in
// the subtree joins, and when it asks for the set's removal: both say something about the requests before them. Whoever
// comes later still completes the subtree, and leaves at once. Loop-confined; private to Relay.
class RequestMerger {
 public:
  static constexpr std::chrono::milliseconds kHold{100};

  explicit RequestMerger(const BitCounter& bits) : bits_(bits) {}

  // Not ok when a rank reports a tensor twice.
  Status add(wire::MergedRequest merged, TimePoint now);
  // What waits in this set leaves now.
  void flush(std::int32_t process_set);
  // The tensor runs: its next use starts.
  void forget(std::int32_t process_set, const std::string& name);
  // The set was removed, and with it what its ranks asked for.
  void drop(std::int32_t process_set);
  // What has waited for long enough leaves.
  void flush_due(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  // What leaves, oldest first; the owner takes from the front.
  std::deque<wire::MergedRequest>& ready() { return ready_; }
  const std::deque<wire::MergedRequest>& ready() const { return ready_; }

 private:
  struct Wait {
    std::int32_t process_set;
    std::string name;
    TimePoint since;
  };
  using Order = std::list<Wait>;
  struct Tensor {
    std::vector<wire::MergedRequest> classes;  // not sent yet; more than one when ranks disagree
    int ranks = 0;                             // that have reported it, sent or not
    std::optional<Order::iterator> wait;       // while there are classes
  };
  void send(Tensor& tensor);

  const BitCounter& bits_;
  std::map<std::int32_t, std::unordered_map<std::string, Tensor>>
      sets_;       // tensors that a part of the subtree has reported
  Order waiting_;  // oldest first
  std::deque<wire::MergedRequest> ready_;
};

}  // namespace hvd::negotiation
