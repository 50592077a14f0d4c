#include "runtime/negotiation/relay.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/wire/codec.h"
#include "runtime/wire/limits.h"

namespace hvd::negotiation {
namespace {

template <typename T>
void append(std::vector<T>& to, std::vector<T>&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

Relay::Relay(topology::TreePlan plan, int rank, const topology::ProcessSetTable& sets) : bits_(plan, rank, sets) {
  HVD_CHECK(rank > 0, "the root is a coordinator, not a relay");
}

Status Relay::add_report(int from_rank, wire::Report report) {
  HVD_RETURN_IF_ERROR(bits_.check_senders(from_rank, report));
  const int unit = *bits_.unit_of(from_rank);
  append(out_.stale_bits, std::move(report.stale_bits));
  requests_.insert(requests_.end(), std::make_move_iterator(report.requests.begin()),
                   std::make_move_iterator(report.requests.end()));
  for (const wire::CacheBit bit : report.ready_bits) {
    if (bits_.report(bit, unit)) out_.ready_bits.push_back(bit);
  }
  for (const auto& join : report.joins) append(out_.ready_bits, bits_.join(join.process_set, join.rank));
  append(out_.joins, std::move(report.joins));
  for (wire::SetChange& change : report.set_changes) set_changes_.push_back(std::move(change));
  append(out_.shutdown_ranks, std::move(report.shutdown_ranks));
  for (wire::LostRank& lost : report.lost_ranks) add_lost(lost.rank, std::move(lost.message));
  return Status::ok();
}

void Relay::add_lost(int rank, std::string message) {
  if (out_.lost_ranks.size() >= wire::kMaxLostRanks) return;
  message.resize(std::min(message.size(), wire::kMaxTextBytes));
  out_.lost_ranks.push_back({rank, std::move(message)});
}

bool Relay::has_report() const { return !requests_.empty() || !set_changes_.empty() || !out_.empty(); }

// Nothing overtakes the requests: a join or a bit says something about the requests before it.
wire::Report Relay::take_report() {
  wire::Report report;
  std::size_t room = wire::kMessageByteBudget;
  while (!requests_.empty()) {
    const std::size_t most = wire::encoded_size_bound(requests_.front());
    if (room < most) {
      report.stale_bits = std::exchange(out_.stale_bits, {});
      return report;
    }
    room -= most;
    report.requests.push_back(std::move(requests_.front()));
    requests_.pop_front();
  }
  std::vector<wire::Request> requests = std::move(report.requests);
  report = std::exchange(out_, {});
  report.requests = std::move(requests);
  while (!set_changes_.empty()) {
    const std::size_t most = wire::encoded_size_bound(set_changes_.front());
    if (room < most && !report.set_changes.empty()) break;
    room -= std::min(room, most);
    report.set_changes.push_back(std::move(set_changes_.front()));
    set_changes_.pop_front();
  }
  return report;
}

Status Relay::on_decision(const wire::Decision& decision) { return bits_.on_decision(decision); }

}  // namespace hvd::negotiation
