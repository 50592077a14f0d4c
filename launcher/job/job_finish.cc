// What JobDriver does when the job is over: what it tells the user, and how it waits for that to be read.
#include "launcher/job/job_driver.h"
#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kSummaryLines = 20;
constexpr std::size_t kLinesInSight = 20;  // that came after the failed rank's own: a screen still shows both

}  // namespace

void JobDriver::finish(int code) {
  if (exit_code_) return;
  exit_code_ = code;
  if (elastic_) elastic_->stop();
  output_.status("");
  start_timer_.stop();
  output_.end_all();  // what was left of unfinished lines comes before the summary, which is to be the last
  // Before the reason of a failure, which is to be read last.
  if (plan_.config.summary) output_.message(summary_text(summary_of(code, {})));
  if (const auto& failure = job_->failures().first()) report_failure(*failure);
  if (results_ && code == 0) results_->job_finished(job_->finished());
  note_job_end(code);
  write_summary(code);
  report_limits_hit(code);
  if (output_.lost_bytes() > 0) {
    output_.message(std::to_string(output_.lost_bytes()) + " bytes of the output are lost: see above");
  }
  timer_.stop();
  // A reader that is only slow gets all of the output, however long that takes; not so when the user wants to leave.
  if (job_->end_requests() > 0) flush_timer_.start(kLastFlush);
  stop_when_flushed();
}

void JobDriver::give_up(const Status& why) {
  output_.message(why.message());
  if (results_) results_->job_gave_up(why);
  finish(1);
}

void JobDriver::report_failure(const JobFailure& failure) {
  std::string circumstance;
  if (failure.who) {
    const int slot = failure.who->slot;
    const bool are_in_sight = output_.lines_after_stderr(slot) <= kLinesInSight;
    const std::vector<std::string> lines = output_.last_stderr_lines(slot, kSummaryLines);
    output_.message(error_summary(job_->failures(), lines, are_in_sight));
    circumstance = circumstance_of(job_->failures(), lines);
  }
  if (results_) results_->job_failed(failure, circumstance);
}

JobSummary JobDriver::summary_of(int code, const std::vector<std::string>& last_stderr_lines) const {
  return {.command = plan_.config.command,
          .num_proc = plan_.config.num_proc,
          .started = started_,
          .duration = SteadyClock::now() - start_,
          .exit_code = code,
          .restarts = restarts(),
          .failures = job_->failures(),
          .last_stderr_lines = last_stderr_lines,
          .processes = ledger_};
}

void JobDriver::write_summary(int code) {
  if (!summary_.fd.valid()) return;
  const auto& failure = job_->failures().first();
  const auto lines = failure && failure->who ? output_.last_stderr_lines(failure->who->slot, kSummaryLines)
                                             : std::vector<std::string>();
  const std::string text = summary_json(summary_of(code, lines));
  HVD_FAILPOINT("summary.write");
  const Status status = write_all(summary_.fd.get(), text.data(), text.size());
  if (!status.is_ok()) output_.message("cannot write " + summary_.name + ": " + status.message());
}

// A client that was turned away may be why the job failed; in a job that went well it is noise from a port scanner.
void JobDriver::report_limits_hit(int code) {
  if (code == 0 && plan_.config.verbose == 0) return;
  const std::string limits = launch_.limits_hit();
  if (!limits.empty()) output_.message("the rendezvous server turned clients away: " + limits);
}

void JobDriver::stop_when_flushed() {
  if (over()) loop_.stop();
}

}  // namespace hvd::launcher
