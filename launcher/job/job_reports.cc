// What JobDriver writes to, and what it writes down of what happens: --events, and who ran for how long.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/job/job_driver.h"
#include "launcher/process/shared_fd.h"

namespace hvd::launcher {

bool JobDriver::open_outputs() {
  Status status;
  if (plan_.config.debug_rank && is_empty_input(STDIN_FILENO)) {
    status = Status::invalid_argument("--debug-rank " + std::to_string(*plan_.config.debug_rank) +
                                      ": nobody can type to that rank, for standard input is closed or /dev/null; give "
                                      "horovodrun a terminal, or a pipe");
  }
  if (status.is_ok() && plan_.config.results_fd) {  // first: it takes why the others cannot be opened
    auto results =
        ResultChannel::open(loop_, *plan_.config.results_fd,
                            {.on_progress = [this] { output_progress(); }, .on_gone = [this] { results_gone(); }});
    status = results.status();
    if (status.is_ok()) results_ = std::move(results).value();
  }
  if (status.is_ok() && plan_.config.output_filename)
    status = output_.open_files(*plan_.config.output_filename, plan_.config.num_proc);
  if (status.is_ok() && plan_.config.log_dir) {
    auto file = open_summary_file(*plan_.config.log_dir);
    status = file.status();
    if (status.is_ok()) summary_ = std::move(file).value();
  }
  if (status.is_ok()) status = open_events();
  if (status.is_ok()) return true;
  give_up(status);
  return false;
}

Status JobDriver::open_events() {
  if (!plan_.config.events) return Status::ok();
  HVD_ASSIGN_OR_RETURN(OutputFile file, open_events_file(*plan_.config.events));
  if (summary_.fd.valid() && is_same_file(file.fd.get(), summary_.fd.get())) {
    return Status::invalid_argument("--events: " + file.name + " is where --log-dir " + *plan_.config.log_dir +
                                    " has the summary: name another file");
  }
  event_file_.emplace(std::move(file), [this](const std::string& text) { output_.message(text); });
  return Status::ok();
}

// Before the file is open, what is said is that it, or another one, cannot be.
void JobDriver::write_event(const std::string& line) {
  if (event_file_) event_file_->write(line);
}

ProcessRecord JobDriver::record_of(Incarnation process) const {
  const Roster::Slot& slot = job_->roster().slot(process.slot);
  const bool is_spare = job_->spares().contains(process.slot);
  return {.process = process,
          .rank = is_spare ? std::nullopt : std::optional<int>(slot.placement.rank),
          .local_rank = slot.placement.local_rank,
          .host = job_->roster().host_of(process.slot),
          .pid = slot.pid,
          .started = {}};
}

void JobDriver::note_start(Incarnation process, int pid, TimePoint now) {
  if (!is_latest(process) || job_->roster().slot(process.slot).state != Roster::SlotState::kWaiting) return;
  ProcessRecord record = record_of(process);
  record.pid = pid;
  record.started = now;
  events_.rank_started(ledger_.add(std::move(record)));
}

void JobDriver::note_no_start(const NotStartedMessage& message) {
  if (!is_latest(message.process)) return;
  ProcessRecord record = record_of(message.process);
  record.pid = 0;  // that of the slot's process before
  events_.rank_not_started(record, message.code, message.reason);
}

void JobDriver::note_end(Incarnation process, const std::optional<ExitStatus>& status, TimePoint now) {
  if (const ProcessRecord* record = ledger_.end(process, status, now)) events_.rank_ended(*record);
}

void JobDriver::note_loss(int agent, const std::string& reason, TimePoint now) {
  const Roster::Agent& record = job_->roster().agent(agent);
  if (record.state == Roster::AgentState::kGone || exit_code_) return;
  if (!reason.empty()) events_.host_lost(record.host, reason);  // else nobody needs it any more
  for (const int slot : record.slots) {
    note_end({.slot = slot, .number = job_->roster().slot(slot).incarnation}, std::nullopt, now);
  }
}

void JobDriver::note_round(const std::map<int, Placement>& ranks) {
  // One that the end of the job has overtaken is not among the job's.
  if (job_->rounds().empty() || std::exchange(rounds_noted_, job_->rounds().back().number) == rounds_noted_) return;
  std::vector<ProcessRecord> members;
  for (const auto& [number, placement] : ranks) {
    const Incarnation process{.slot = number, .number = job_->roster().slot(number).incarnation};
    ProcessRecord* const running = ledger_.running(process);
    if (running != nullptr) {
      running->rank = placement.rank;
      running->local_rank = placement.local_rank;
      members.push_back(*running);
    } else if (job_->roster().slot(number).state == Roster::SlotState::kWaiting) {
      members.push_back(record_of(process));  // the rendezvous was faster than its agent, which will tell its pid
      members.back().pid = 0;
    }
  }
  std::ranges::sort(members, {}, &ProcessRecord::rank);
  events_.round_began(job_->rounds().back(), members);
}

void JobDriver::note_action(const JobAction& action) {
  if (action.kind == JobAction::Kind::kOpenAgent) {
    events_.host_added(action.host.name);
  } else if (action.kind == JobAction::Kind::kCloseAgent) {
    events_.host_removed(host_name(action.agent));
  } else if (action.kind == JobAction::Kind::kNotify) {
    events_.hosts_changed(action.code);
  }
}

void JobDriver::note_job_end(int code) {
  const auto& failure = job_->failures().first();
  events_.job_ended(code, SteadyClock::now() - start_, restarts(), failure ? &*failure : nullptr);
  if (event_file_ && event_file_->lost_lines() > 0) {
    output_.message(std::to_string(event_file_->lost_lines()) + " events are missing in " + event_file_->name());
  }
}

}  // namespace hvd::launcher
