#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/elastic/host_book.h"
#include "launcher/elastic/ranking.h"
#include "launcher/hosts/host_spec.h"
#include "rendezvous/protocol/seat.h"
#include "runtime/base/deadline.h"

namespace hvd::launcher {

using rendezvous::Incarnation;

struct ElasticLimits {
  int num_proc = 1;      // so many slots there must be at the start
  int min_num_proc = 1;  // and so many later
  int max_num_proc = 1;  // more are not used
  int num_spares = 0;    // slots that are kept for processes that wait to take a lost one's place
  SetsAside sets_aside = SetsAside::kHosts;
  std::optional<int> reset_limit;  // so often a round may end and the next begin
  bool hosts_are_fixed = false;    // none comes that has not been listed at first
  // Who is listed has called in, and nobody could open it again: it stays open until it leaves the list or is told to
  // go. One that is lost is used again as soon as it is listed anew.
  bool hosts_call_in = false;
  Millis slots_timeout{600'000};  // to wait for enough slots
  Millis host_timeout{30'000};    // for a host to answer
  Millis leave_timeout{5'000};    // for a process whose slot is gone to leave by itself
  Millis grace{0};                // for a process that was told that its host goes
  Millis restart_memory{60'000};  // a process that lived longer does not count among its slot's failed ones
  // A process that is stopped, or not there when the others wait for the next round, is ended then. Nothing: never.
  std::optional<Millis> replace_stuck;
  std::optional<CooldownRange> cooldown;
};

// What has to be done next, in order, and for people why.
struct ElasticDecision {
  enum class Kind {
    kOpenHost,   // `host` is number `agent` from now on: make it ready for its slots
    kCloseHost,  // `agent` is not needed any more
    kStart,      // `process`, in its slot on `agent`, as `placement`, which a round may still change
    kRemove,     // the slot of `process` is gone: `text` is what it gets when it asks for a round, or while it waits
    kStop,       // end the process in the slot of `process` (`at_once`: it would not listen)
    kOffer,      // the next round is `hosts`: it begins when all of them wait
    kWithdraw,   // the offer, unless it was taken
    kNotify,     // the ranks: hosts have changed, as `change` says
    kPrint,      // `text`
    kReport,     // `text`, which is about `process`
    kEnd,        // of the job: well, or because of `text`, or (no text) because of the failures
  };
  Kind kind;
  int agent = -1;
  HostSpec host = {};
  Incarnation process = {};
  Placement placement = {};
  std::vector<HostSlots> hosts = {};
  int change = kNoHostChange;
  bool is_well = false;
  bool at_once = false;
  std::string text = {};

  static ElasticDecision print(std::string text) { return {.kind = Kind::kPrint, .text = std::move(text)}; }
};
using ElasticDecisions = std::vector<ElasticDecision>;

// Who belongs to an elastic job, and when: hosts and processes come and go, rounds begin and end. Events and the time
// go in, decisions come out. Pure; owned by ElasticRun, which carries them between it and the world. It does not know
// how a process is started or what it trains.
//
// docs/design/elastic.md has the states drawn. In short: slots are chosen (waiting for slots while there are too few),
// started where they have no process, and when the processes of all of them wait at the rendezvous, the round begins.
// It ends when every process of it has ended or waits again; what came of each decides how the job goes on.
class ElasticJob {
 public:
  static constexpr Millis kReportStuck{10'000};  // after the others have begun to wait
  static constexpr Millis kStoodStill{2000};     // we did, if a timer is so late
  static constexpr Millis kEndsWithin{10'000};   // who was told to stop, by SIGKILL at last; else its host is lost
  static constexpr int kMaxFailures = 3;         // of processes of one slot, one after the other, without any progress

  // `random`: see HostBook.
  ElasticJob(const ElasticLimits& limits, std::function<double()> random);

  // The complete list, as it is now. Once at least, or nothing ever begins.
  ElasticDecisions hosts_found(const std::vector<HostSpec>& hosts, TimePoint now);
  ElasticDecisions host_ready(int agent, TimePoint now);
  // Its processes, if it had any, are gone.
  ElasticDecisions host_lost(int agent, const std::string& reason, TimePoint now);
  // It waits at the rendezvous for a round. `progress`: how far its training has come, see rendezvous::JoinRequest.
  ElasticDecisions process_waiting(Incarnation process, std::uint64_t progress, TimePoint now);
  ElasticDecisions process_ended(Incarnation process, bool is_well, TimePoint now);
  // By a signal of somebody's; it may go on later.
  void process_stopped(Incarnation process, bool is_stopped, TimePoint now);
  // The whole host, or the process, was told to go by whoever owns the machine: it leaves after the next commit, and
  // has the grace for that. Its place is not used again before the host has left the list and come back.
  ElasticDecisions host_draining(int agent, TimePoint now);
  ElasticDecisions process_draining(Incarnation process, TimePoint now);
  // The offer was taken: the round has begun, with these ranks by slot. Or it was withdrawn.
  ElasticDecisions round_began(const std::map<int, Placement>& ranks, TimePoint now);
  ElasticDecisions offer_withdrawn(TimePoint now);
  ElasticDecisions timer_fired(TimePoint now);

  std::optional<TimePoint> deadline() const;
  // Deadlines move by this.
  void was_stopped(SteadyClock::duration span);
  bool has_ended() const { return phase_ == Phase::kEnded; }
  // Whether the process' end counts: it belongs to the round, or was to belong to it, and was not told to go.
  bool is_member(Incarnation process) const;
  // It belonged to the last round, and ended well.
  bool has_finished(Incarnation process) const;
  // The slots whose processes wait in case another is lost.
  const std::set<int>& spares() const { return spares_; }
  // "waiting for slots: 2 of at least 3": for tests and people.
  std::string describe() const;

 private:
  enum class Phase { kWaitingForSlots, kForming, kRunning, kEnded };
  enum class Outcome { kNone, kSucceeded, kFailed, kDrained };
  struct Slot {
    int agent = -1;
    int index = 0;                  // on its host
    std::uint32_t incarnation = 0;  // of its latest process
    bool has_process = false;
    bool has_state =
        false;  // the process has the job's state: it was there from the start, or says it has come further
    bool is_waiting = false;                // the process, at the rendezvous
    bool has_come = false;                  // there once
    std::optional<TimePoint> leaves_until;  // the slot is gone, and the process has to leave
    bool is_draining = false;               // its end is no failure; by `drains_until` it is made to end
    TimePoint drains_until;
    bool is_told_to_stop = false;  // since it did not
    TimePoint ends_by = {};        // then
    // The local rank of its process in its first round, whose init() tells it: it takes that GPU then, and stays there.
    // Until then what it was started as; -1: as a spare.
    int home = -1;
    bool has_been_in_round = false;    // its process
    Outcome outcome = Outcome::kNone;  // of its process in this round
    std::optional<TimePoint> stopped_since = {};
    bool is_reported_stuck = false;  // in this round
    TimePoint started;
    std::uint64_t progress_at_start = 0;  // of the job
  };
  struct Agent {
    std::string host;
    bool is_ready = false;
    bool is_lost = false;
    TimePoint opens_until;
    std::map<int, int> slots;  // by index
  };
  using Place = std::pair<std::string, int>;  // host and index
  using Kind = ElasticDecision::Kind;

  // Which slots there are to be: elastic_job_choice.cc. With indexes for slots, and hosts in order.
  struct Choice {
    std::vector<HostSlots> ranks;
    std::vector<HostSlots> spares;
  };
  Choice choose() const;
  std::vector<HostSlots> wanted() const { return choose().ranks; }
  std::vector<HostSlots> usable_places() const;
  int rank_count(const std::vector<HostSlots>& places) const;
  bool is_given_up(const Place& place) const;
  int reluctance(const std::string& host, int index) const;
  std::vector<HostSlots> in_order(const std::set<Place>& places) const;
  const Slot* slot_in(const Place& place) const;

  // How they come to be: elastic_job_slots.cc.
  void assign(TimePoint now, ElasticDecisions& out);
  void open_slots(std::vector<HostSlots>& places, TimePoint now, ElasticDecisions& out);
  void keep_spares(TimePoint now, ElasticDecisions& out);
  void spare_ended(const Slot& slot, TimePoint now, ElasticDecisions& out);
  bool has_state_left(const std::vector<HostSlots>& places) const;
  void wait_for_slots(int have, int needed, TimePoint now, ElasticDecisions& out);
  int slot_at(const HostSpec& host, int index, TimePoint now, ElasticDecisions& out);
  void remove_others(TimePoint now, ElasticDecisions& out);
  void close_idle_hosts(ElasticDecisions& out);
  void start_missing(TimePoint now, ElasticDecisions& out);
  void start_spares(TimePoint now, ElasticDecisions& out);
  void start(int number, const Placement& placement, TimePoint now, ElasticDecisions& out);
  void hosts_changed(int change, TimePoint now, ElasticDecisions& out);
  void lose_host(const std::string& host, const std::string& reason, TimePoint now, ElasticDecisions& out);
  bool is_kept_open(const Agent& agent) const;
  void notify_if_different(int change, ElasticDecisions& out);
  void drain(int number, TimePoint now);
  bool is_in_the_way(int number, const Slot& slot) const;
  static void tell_to_stop(Slot& slot, TimePoint ends_by);
  void lose_hosts_of_who_stay(TimePoint now, ElasticDecisions& out);
  void give_up_host(int agent, const std::string& reason, TimePoint now, ElasticDecisions& out);
  static std::optional<TimePoint> must_end_by(const Slot& slot);
  Slot* slot_of(Incarnation process) { return const_cast<Slot*>(std::as_const(*this).slot_of(process)); }
  const Slot* slot_of(Incarnation process) const;
  std::string host_of(const Slot& slot) const { return agents_.at(slot.agent).host; }
  bool is_member(int slot) const;

  // Who is there and does nothing: elastic_job_stuck.cc.
  bool holds_up_others(int number, const Slot& slot) const;
  void note_who_is_missing(TimePoint now);
  std::optional<TimePoint> missing_since(int number, const Slot& slot) const;
  std::optional<TimePoint> stuck_until(int number, const Slot& slot) const;
  std::optional<TimePoint> next_look_at(int number, const Slot& slot) const;
  void forgive_if_late(TimePoint now);
  void look_for_stuck(TimePoint now, ElasticDecisions& out);

  // What becomes of a round: elastic_job_rounds.cc.
  void count_good_ends_as_drained();
  void settle(TimePoint now, ElasticDecisions& out);
  bool is_settled() const;
  bool has_outcome(Outcome outcome) const;
  bool has_ended_members() const;
  bool any_waiting() const;
  void after_failures(TimePoint now, ElasticDecisions& out);
  std::set<Place> places_to_set_aside() const;
  bool can_do_without(const std::set<Place>& failed) const;
  void count_failure(const Slot& slot, bool took_part, TimePoint now, ElasticDecisions& out);
  void next_round(TimePoint now, ElasticDecisions& out);
  void end(bool is_well, const std::string& text, ElasticDecisions& out);
  int needed() const { return rounds_ == 0 ? limits_.num_proc : limits_.min_num_proc; }

  ElasticLimits limits_;
  HostBook hosts_;
  Phase phase_ = Phase::kWaitingForSlots;
  std::map<int, Agent> agents_;     // those that are open, by number
  std::map<int, Slot> slots_;       // of these agents
  std::map<Place, int> failures_;   // one after the other
  std::set<Place> drained_;         // until their host is not listed
  std::uint64_t progress_ = 0;      // the most that a process of the job has said
  std::vector<HostSlots> members_;  // of the round that is, or is to be
  std::set<int> spares_;            // slots
  bool is_offered_ = false;
  bool is_listed_ = false;  // hosts have been listed
  std::optional<TimePoint> wait_until_;
  std::optional<TimePoint> disturbed_since_;  // the round that runs: somebody has ended or waits for the next one
  std::optional<TimePoint> missing_since_;  // the round that is to be: it lacks processes, and since then none has come
  std::ptrdiff_t missing_ = 0;              // so many
  SteadyClock::duration longest_start_{};   // of a process, until it came to the rendezvous
  int rounds_ = 0;                          // that have begun
  int resets_ = 0;
  int last_agent_ = -1;
  int last_slot_ = -1;
};

}  // namespace hvd::launcher
