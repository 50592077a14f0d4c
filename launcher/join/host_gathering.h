#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/join/called_hosts.h"
#include "launcher/join/join_listener.h"
#include "launcher/join/sealed_link.h"
#include "launcher/plan/launch_config.h"
#include "launcher/process/main_loop.h"
#include "runtime/admission/admission.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Where hosts call in for a job that waits for them (`--wait-for-hosts`): has each prove the token, and holds the
// connections of those that may come until the job takes them. Of a static job who comes later is refused with a
// reason, as long as this object lives; to an elastic one hosts may come until it ends. What strangers may cost is
// bounded (admission.h). Owned by whoever runs the job, loop-confined.
class HostGathering {
 public:
  static Result<std::unique_ptr<HostGathering>> open(MainLoop& loop, const GatherConfig& config, bool is_elastic,
                                                     const crypto::Secret& token);
  ~HostGathering();

  // See JoinListener.
  const std::string& address() const { return listener_->address(); }
  // What hosts that call in may take at a time, their connections to the job's agents apart.
  static std::size_t max_descriptors(int hosts);
  // Runs the loop until all are there, or an error that says how many came; `print` is told now and then. kAborted when
  // the other end of `asker`, a connected socket, is closed meanwhile: nobody wants the job any more.
  Status wait(Millis patience, const std::function<void(const std::string&)>& print, std::optional<int> asker = {});
  // The job begins. Requires: wait() has succeeded.
  void begin();
  // An elastic job has begun: `on_change` when a host has come or gone.
  void watch(std::function<void()> on_change) { on_change_ = std::move(on_change); }
  std::vector<CalledHost> hosts() const { return called_.hosts(); }
  // The connection of one of them, which may have ended; nothing if it is not there any more.
  std::unique_ptr<SealedLink> take(const std::string& name);
  // The connection of one that was taken is closed: it may call in again, if the job is elastic.
  void let_go(const std::string& name);
  // The job cannot use it: its connection ends.
  void turn_away(const std::string& name);
  // The job is over, or ends: those that were not taken are told so, and who calls is refused.
  void end();

 private:
  static constexpr Millis kProofDeadline{5000};  // for who is introduced to prove the token and say its name
  static constexpr Millis kMessage{10000};

  struct Guest {
    std::string address;
    std::unique_ptr<SealedLink> link;
    std::unique_ptr<loop::Timer> deadline;
    std::string name;  // "" until it may come
  };
  HostGathering(MainLoop& loop, const GatherConfig& config, bool is_elastic, const crypto::Secret& token);
  void add(Fd fd, const std::string& address);
  void introduced(admission::ConnectionId id);
  void asked(admission::ConnectionId id, ByteSpan record);
  void ended(admission::ConnectionId id);
  void forget(admission::ConnectionId id);
  void left(const std::string& name);
  void changed();

  MainLoop& loop_;
  const GatherConfig config_;
  const crypto::Secret token_;
  CalledHosts called_;
  std::function<void()> on_change_;
  loop::Timer cleanup_;  // of links that could not be destroyed where they ended
  loop::Timer news_;     // of a host that has come: not from inside its own link, which may be taken over then
  admission::Admission admission_;
  admission::ConnectionId last_id_ = 0;
  std::map<admission::ConnectionId, Guest> guests_;
  std::vector<Guest> retired_;
  std::unique_ptr<JoinListener> listener_;
};

}  // namespace hvd::launcher
