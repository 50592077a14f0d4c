#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "runtime/base/deadline.h"

namespace hvd::launcher {

// How the hosts differ from what they were: bits, as Python's HostUpdateResult has them.
enum HostChange { kNoHostChange = 0, kHostRemoved = 1, kHostAdded = 2 };

// The shortest and the longest time for which a failed host, or a slot, is left aside.
using CooldownRange = std::pair<Millis, Millis>;

// Which hosts and slots an elastic job may use, and in which order: what discovery has listed, less what has failed.
// The order is that of arrival: who stays keeps its place, who is new or comes back goes to the end. Pure; owned by
// ElasticJob.
class HostBook {
 public:
  // Without a range a host that was set aside stays there. `random`: from 0 to 1, for each time a host is set aside.
  HostBook(std::optional<CooldownRange> cooldown, std::function<double()> random);

  // The complete list, as it is now. HostChange bits.
  int update(const std::vector<HostSpec>& listed);
  // It has failed: for lo x 2^n + (0..1) x lo the n-th time, within the range. Nothing happens while it is aside.
  void set_aside(const std::string& name, TimePoint now);
  // So for one of its slots.
  void set_slot_aside(const std::string& name, int index, TimePoint now);
  // It was told to go, or is lost, and comes back no sooner than it has left the list and returned to it. What it is
  // left aside for besides stays.
  void set_aside_until_relisted(const std::string& name);
  // Hosts and slots whose time has come may be used again. HostChange bits.
  int end_cooldowns(TimePoint now);

  bool is_usable(const std::string& name) const;
  bool is_slot_aside(const std::string& name, int index) const;
  // The most slots that it was listed with.
  int most_slots(const std::string& name) const { return hosts_.at(name).most_slots; }
  bool is_listed(const std::string& name) const { return hosts_.contains(name) && hosts_.at(name).spec.has_value(); }
  // It is listed, and was not told to go: aside or not.
  bool is_there(const std::string& name) const { return is_listed(name) && !hosts_.at(name).is_drained; }
  // In the order of assignment: that of arrival, but parts of one machine follow the first of them.
  std::vector<HostSpec> usable() const;
  // When the next host or slot comes back by itself; nothing: none does.
  std::optional<TimePoint> next_return() const;
  // "for good", "for 12 s". Requires: it was set aside.
  std::string how_long(const std::string& name, TimePoint now) const;
  std::string how_long(const std::string& name, int index, TimePoint now) const;

 private:
  struct Cooldown {
    bool is_aside = false;
    std::optional<TimePoint> until;  // while it is aside; nothing: for good
    int times = 0;
  };
  struct Host {
    std::optional<HostSpec> spec;  // as listed; nothing: not listed now
    int most_slots = 0;
    bool is_drained = false;  // and aside until it is not listed, whatever else
    Cooldown cooldown;
    std::map<int, Cooldown> slots;  // that were ever aside
  };

  void begin(Cooldown& cooldown, TimePoint now);
  static bool end(Cooldown& cooldown, TimePoint now);
  static bool is_aside(const Host& host) { return host.is_drained || host.cooldown.is_aside; }
  static std::string text_of(const Cooldown& cooldown, TimePoint now);
  void move_to_end(const std::string& name);

  std::optional<CooldownRange> cooldown_;
  std::function<double()> random_;
  std::map<std::string, Host> hosts_;  // all that were ever listed: what failed is remembered
  std::vector<std::string> order_;     // those that are listed
};

}  // namespace hvd::launcher
