#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "launcher/join/join_messages.h"

namespace hvd::launcher {

// A host whose agent was not started by us, and that has called in instead (`horovodrun --join`).
struct CalledHost {
  std::string name;
  std::string node;     // see HostSpec
  std::string address;  // numeric: where it called from
};

HostSpec spec_of(const CalledHost& host, int slots);

// Which hosts are there of those that call in, who else may come, and what is said of that. A static job has so many
// hosts as it has asked for, for good. To an elastic one hosts come as long as it runs, and who has gone may come again
// under its name. Pure; owned by HostGathering.
class CalledHosts {
 public:
  // The job begins with `hosts` of them.
  CalledHosts(int hosts, bool is_elastic) : needed_(static_cast<std::size_t>(hosts)), is_elastic_(is_elastic) {}

  // Why the host may not come; "" when it may, and is there from now on.
  std::string ask(const JoinRequest& request, const std::string& address);
  // The job has its connection from now on. False: it is not there, or was taken before.
  bool take(const std::string& name);
  // Its connection has ended. Nothing happens to the hosts of a static job that has begun.
  void left(const std::string& name);
  // The same, of one that the job has taken; false: it is none, or another of that name has come since.
  bool let_go(const std::string& name);
  void begin() { has_begun_ = true; }
  void end() { has_ended_ = true; }
  // Somebody who greeted as a host did not prove the token.
  void not_proven(const std::string& address);

  bool is_complete() const { return hosts_.size() >= needed_; }
  bool has_ended() const { return has_ended_; }
  // One that leaves leaves no gap that others may fill.
  bool is_closed() const { return has_begun_ && !is_elastic_; }
  // By name, but those of one node follow its first.
  std::vector<CalledHost> hosts() const;
  // "1 of 2 hosts have joined (n01)".
  std::string progress() const;

 private:
  struct Entry {
    CalledHost host;
    bool is_taken = false;
  };
  std::string refusal_of(const JoinRequest& request) const;
  std::string count_refusal() const;

  const std::size_t needed_;
  const bool is_elastic_;
  std::map<std::string, Entry> hosts_;  // by name
  bool has_begun_ = false;
  bool has_ended_ = false;
  int unproven_ = 0;
  std::string last_unproven_;  // where that came from
};

}  // namespace hvd::launcher
