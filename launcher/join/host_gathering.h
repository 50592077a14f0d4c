#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/join/join_messages.h"
#include "launcher/join/sealed_link.h"
#include "launcher/plan/launch_config.h"
#include "launcher/process/main_loop.h"
#include "runtime/admission/admission.h"
#include "runtime/loop/poll.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// A host whose agent was not started by us, and that has called in instead (`horovodrun --join`).
struct JoinedHost {
  std::string name;
  std::string node;     // see HostSpec
  std::string address;  // numeric: where it called from
  std::unique_ptr<SealedLink> link;
};

// Where hosts call in for a job that waits for them (`--wait-for-hosts`): listens, has each prove the token, and keeps
// those that it takes, until they are as many as the job needs. Who comes later, or with the name of one that is there,
// is refused with a reason, as long as this object lives. What strangers may cost is bounded (admission.h). Owned by
// whoever runs the job, loop-confined.
class HostGathering {
 public:
  static Result<std::unique_ptr<HostGathering>> open(MainLoop& loop, const GatherConfig& config,
                                                     const crypto::Secret& token);
  ~HostGathering();

  // "192.0.2.1:4711", "[2001:db8::1]:4711".
  const std::string& address() const { return address_; }
  // What hosts that call in may take at a time, their connections to the job's agents apart.
  static std::size_t max_descriptors(int hosts);
  // Runs the loop until all are there, or an error that says how many came; `print` is told now and then. kAborted when
  // the other end of `asker`, a connected socket, is closed meanwhile: nobody wants the job any more.
  Status wait(Millis patience, const std::function<void(const std::string&)>& print, std::optional<int> asker = {});
  // Requires: wait() has succeeded; once. By name, but those of one node follow its first.
  std::vector<JoinedHost> take();

 private:
  static constexpr Millis kProofDeadline{5000};  // for who is introduced to prove the token and say its name
  static constexpr Millis kMessage{10000};
  static constexpr Millis kPauseAfterFailure{100};

  struct Guest {
    std::string address;
    std::unique_ptr<SealedLink> link;
    std::unique_ptr<loop::Timer> deadline;
    std::string name;  // "" until it has been taken
    std::string node;
  };
  HostGathering(MainLoop& loop, const GatherConfig& config, const crypto::Secret& token);
  Status listen();
  void accept_some();
  void introduced(admission::ConnectionId id);
  void add(Fd fd, const std::string& address);
  void asked(admission::ConnectionId id, ByteSpan record);
  std::string refusal_of(const JoinRequest& request) const;
  void ended(admission::ConnectionId id);
  void forget(admission::ConnectionId id);
  std::size_t count() const;
  // "1 of 2 hosts have joined (n01)".
  std::string progress() const;

  MainLoop& loop_;
  const GatherConfig config_;
  const crypto::Secret token_;
  std::string address_;
  std::string call_at_;  // as hosts write it: the node's name where that is all addresses
  Fd listener_;
  std::unique_ptr<loop::Poll> poll_;
  loop::Timer pause_;    // without descriptors, say
  loop::Timer cleanup_;  // of links that could not be destroyed where they ended
  admission::Admission admission_;
  admission::ConnectionId last_id_ = 0;
  std::map<admission::ConnectionId, Guest> guests_;
  std::vector<Guest> retired_;
  std::optional<std::vector<std::string>> taken_;  // the names of the job's hosts, once take() was called
  int unproven_ = 0;                               // that greeted as a host and did not prove the token
  std::string last_unproven_;                      // where that came from
};

}  // namespace hvd::launcher
