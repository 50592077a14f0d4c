// How the DataPlane gets its connections: to ranks below this one, one for each pair or several, when a message first
// needs them.
#include <algorithm>

#include "runtime/base/failpoint.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/transport/data/data_plane.h"

namespace hvd::transport {
namespace {

// Of a message; the segments of a ring are of up to 256 KiB.
constexpr std::size_t kManyConnectionsFrom = 64U << 10U;

// A rank's own numbers of connections, where it may do without: a ring has one next rank and a doubling allreduce a
// dozen, but the ranks of an alltoall would have several to all others, and no more files could be opened.
constexpr int kMostWidened = 16;
constexpr Millis kPatienceForMore{5000};

// Of things that are done at the same time; it ends the others. Thread-safe.
class FirstError {
 public:
  // `outer` ends all of them, and outlives it.
  explicit FirstError(const Cancel& outer) : cancel_(&outer) {}

  void add(const Status& status) {
    if (status.is_ok()) return;
    const MutexLock lock(mutex_);
    if (first_.is_ok()) first_ = status;
    cancel_.cancel();
  }
  Status status() {
    const MutexLock lock(mutex_);
    return first_;
  }
  const Cancel& cancel() const { return cancel_; }

 private:
  Mutex mutex_;
  Status first_ HVD_GUARDED_BY(mutex_);
  Cancel cancel_;
};

}  // namespace

int DataPlane::connections_for(const PeerLink& link, std::size_t bytes) const {
  if (bytes < kManyConnectionsFrom) return 1;
  return std::min(sockets_.load(std::memory_order_relaxed), link.most());
}

bool DataPlane::lacks_connection(const ExpectedMessage& message) {
  if (message.peer >= rank_) return false;
  const PeerLink& target = link(message.peer);
  return target.count() < connections_for(target, message.bytes);
}

Status DataPlane::ensure_connected(int to, std::size_t bytes) {
  return ensure_connected({to, bytes}, {connector_, Deadline::after(connect_timeout_)});
}

Status DataPlane::ensure_connected(const ExpectedMessage& message, const Attempt& attempt) {
  if (!lacks_connection(message)) return Status::ok();
  PeerLink& target = link(message.peer);
  const int wanted = connections_for(target, message.bytes);
  const MutexLock lock(target.connecting());
  if (target.count() >= wanted) return Status::ok();
  HVD_RETURN_IF_ERROR(target.lost());
  Status connected = connect(message.peer, target, wanted, attempt);
  // Given up for the sake of another rank's error.
  const bool is_given_up = connected.code() == StatusCode::kAborted && !aborted();
  return connected.is_ok() || is_given_up ? connected : lose(message.peer, connected);
}

// A handshake takes four round trips, so those of many ranks go on at the same time.
Status DataPlane::ensure_connected(std::span<const ExpectedMessage> messages) {
  std::vector<ExpectedMessage> missing;
  for (const ExpectedMessage& message : messages) {
    if (lacks_connection(message)) missing.push_back(message);
  }
  if (missing.empty()) return Status::ok();
  if (missing.size() == 1) return ensure_connected(missing.front().peer, missing.front().bytes);
  const Deadline deadline = Deadline::after(connect_timeout_);
  HVD_RETURN_IF_ERROR(fetch_rows_of(missing, deadline));
  FirstError first(cancel_);
  const Connector connector(self_, first.cancel());
  for_each_at_once("hvd-connect", missing.size(), kConnectsAtOnce, [&](std::size_t i) {
    if (!first.cancel().cancelled()) first.add(ensure_connected(missing[i], {connector, deadline}));
  });
  const Status status = first.status();
  return status.is_ok() ? usable() : status;
}

Status DataPlane::lose(int peer, const Status& why) {
  progress_.exclusive([&] { link(peer).close(why); });
  on_lost(peer, why);
  return why;
}

Status DataPlane::connect(int to, PeerLink& target, int wanted, const Attempt& attempt) {
  HVD_FAILPOINT_RETURN("data.connect");
  HVD_ASSIGN_OR_RETURN(const Bytes encoded, row_of(to, attempt.deadline));
  auto row = AddressRow::decode(encoded);
  if (!row.is_ok()) return row.status().annotate("rank " + std::to_string(to));
  while (target.count() < wanted) {
    const int had = target.count();
    if (had == 0 || !may_do_without_.load(std::memory_order_relaxed)) {
      HVD_RETURN_IF_ERROR(connect_once(row.value(), to, target, attempt));
      continue;
    }
    Status more = Status::precondition("this rank has several to " + std::to_string(kMostWidened) + " others");
    if (had > 1 || widened_.fetch_add(1) < kMostWidened) {
      const Deadline soon = Deadline::at(std::min(attempt.deadline.when(), Deadline::after(kPatienceForMore).when()));
      more = connect_once(row.value(), to, target, {attempt.connector, soon});
    }
    if (more.is_ok()) continue;
    if (!usable().is_ok() || !target.lost().is_ok()) return more;
    target.stay_at(had);
    HVD_LOG(kInfo, "no more connections to a rank", log_field("rank", to), log_field("has", had),
            log_field("because", more.message()));
    break;
  }
  return Status::ok();
}

Status DataPlane::connect_once(const AddressRow& row, int to, PeerLink& target, const Attempt& attempt) {
  Hello hello;
  hello.kind = ConnectionKind::kData;
  hello.tls = session_->tls;
  hello.from_rank = rank_;
  hello.to_rank = to;
  hello.number = target.count();
  hello.epoch = session_->epoch;
  hello.host_name = self_.host_name;
  if (hello.number > 0) HVD_FAILPOINT_RETURN("data.connect_more");
  auto stream = attempt.connector.connect(row, hello, session_->key, attempt.deadline);
  if (!stream.is_ok()) return stream.status().annotate("data connection");
  const bool attached = target.attach(hello.number, std::move(stream).value(), row.host.host_name);
  return attached ? Status::ok() : target.lost();
}

// Every request brings as many rows as all before it together, of the next lower ranks, to which an alltoall connects
// next: a ring asks for one, and all ranks of an alltoall ask the store N log N times instead of N².
Result<Bytes> DataPlane::row_of(int rank, Deadline deadline) {
  const MutexLock lock(rows_mutex_);
  if (const auto known = rows_.find(rank); known != rows_.end()) return known->second;
  std::vector<int> wanted{rank};
  for (int next = rank - 1; next >= 0 && wanted.size() < rows_.size(); --next) {
    if (!rows_.contains(next)) wanted.push_back(next);
  }
  HVD_RETURN_IF_ERROR(fetch_rows(wanted, deadline));
  return rows_.at(rank);
}

Status DataPlane::fetch_rows_of(const std::vector<ExpectedMessage>& messages, Deadline deadline) {
  std::vector<int> wanted;
  const MutexLock lock(rows_mutex_);
  for (const ExpectedMessage& message : messages) {
    if (!rows_.contains(message.peer)) wanted.push_back(message.peer);
  }
  return wanted.empty() ? Status::ok() : fetch_rows(wanted, deadline);
}

Status DataPlane::fetch_rows(const std::vector<int>& wanted, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(auto found, session_->rows.rows(wanted, deadline));
  if (found.size() != wanted.size()) return Status::internal("the store has not one row for each rank");
  for (std::size_t i = 0; i < wanted.size(); ++i) rows_.emplace(wanted[i], std::move(found[i]));
  return Status::ok();
}

}  // namespace hvd::transport
