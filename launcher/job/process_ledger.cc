#include "launcher/job/process_ledger.h"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

const ProcessRecord& ProcessLedger::add(ProcessRecord record) {
  if (records_.size() >= most_) {
    auto oldest = records_.end();
    for (auto at = records_.begin(); at != records_.end(); ++at) {
      if (at->second.ended && (oldest == records_.end() || *at->second.ended < *oldest->second.ended)) oldest = at;
    }
    if (oldest != records_.end()) {
      records_.erase(oldest);
      ++forgotten_;
    }
  }
  const Incarnation process = record.process;
  return records_.insert_or_assign(process, std::move(record)).first->second;
}

ProcessRecord* ProcessLedger::running(Incarnation process) {
  const auto found = records_.find(process);
  return found == records_.end() || found->second.ended ? nullptr : &found->second;
}

void ProcessLedger::add_work(Incarnation process, const rendezvous::RankWork& work) {
  ProcessRecord* const record = running(process);
  if (record == nullptr) return;
  if (!record->work) record->work.emplace();
  record->work->collectives += work.collectives;
  record->work->bytes += work.bytes;
  record->work->waited_us += work.waited_us;
  record->work->session_us += work.session_us;
}

const ProcessRecord* ProcessLedger::end(Incarnation process, const std::optional<ExitStatus>& status, TimePoint now) {
  ProcessRecord* const record = running(process);
  if (record == nullptr) return nullptr;
  record->ended = now;
  record->status = status;
  return record;
}

}  // namespace hvd::launcher
