// How the DataPlane gets its connections: to ranks below this one, one for each pair or several, when a message first
// needs them.
#include <atomic>

#include "runtime/base/failpoint.h"
#include "runtime/base/thread.h"
#include "runtime/transport/data/data_plane.h"

namespace hvd::transport {
namespace {

// Of a message; the segments of a ring are of up to 256 KiB.
constexpr std::size_t kManyConnectionsFrom = 64U << 10U;

}  // namespace

int DataPlane::connections_for(std::size_t bytes) const { return bytes < kManyConnectionsFrom ? 1 : sockets_; }

bool DataPlane::lacks_connection(const ExpectedMessage& message) {
  return message.peer < rank_ && link(message.peer).count() < connections_for(message.bytes);
}

Status DataPlane::ensure_connected(int to, std::size_t bytes) {
  if (!lacks_connection({to, bytes})) return Status::ok();
  PeerLink& target = link(to);
  const int wanted = connections_for(bytes);
  const MutexLock lock(target.connecting());
  if (target.count() >= wanted) return Status::ok();
  HVD_RETURN_IF_ERROR(target.lost());
  Status connected = connect(to, target, wanted);
  return connected.is_ok() ? connected : lose(to, connected);
}

// A handshake takes four round trips, so those of many ranks go on at the same time.
Status DataPlane::ensure_connected(std::span<const ExpectedMessage> messages) {
  std::vector<ExpectedMessage> missing;
  for (const ExpectedMessage& message : messages) {
    if (lacks_connection(message)) missing.push_back(message);
  }
  if (missing.size() > 1) {
    const Status fetched = fetch_rows_of(missing);
    if (!fetched.is_ok()) return lose(missing.front().peer, fetched);
  }
  std::vector<Status> results(missing.size());
  std::atomic<bool> failed = false;
  for_each_at_once("hvd-connect", missing.size(), kConnectsAtOnce, [&](std::size_t i) {
    if (failed) return;
    results[i] = ensure_connected(missing[i].peer, missing[i].bytes);
    if (!results[i].is_ok()) failed = true;
  });
  for (Status& result : results) HVD_RETURN_IF_ERROR(result);
  return Status::ok();
}

Status DataPlane::lose(int peer, const Status& why) {
  progress_.exclusive([&] { link(peer).close(why); });
  on_lost(peer, why);
  return why;
}

Status DataPlane::connect(int to, PeerLink& target, int wanted) {
  HVD_FAILPOINT_RETURN("data.connect");
  const Deadline deadline = Deadline::after(connect_timeout_);
  HVD_ASSIGN_OR_RETURN(const Bytes encoded, row_of(to, deadline));
  auto row = AddressRow::decode(encoded);
  if (!row.is_ok()) return row.status().annotate("rank " + std::to_string(to));
  Hello hello;
  hello.kind = ConnectionKind::kData;
  hello.tls = session_->tls;
  hello.from_rank = rank_;
  hello.to_rank = to;
  hello.epoch = session_->epoch;
  hello.host_name = self_.host_name;
  while (target.count() < wanted) {
    hello.number = target.count();
    auto stream = connector_.connect(row.value(), hello, session_->key, deadline);
    if (!stream.is_ok()) return stream.status().annotate("data connection");
    if (!target.attach(hello.number, std::move(stream).value(), row.value().host.host_name)) return target.lost();
  }
  return Status::ok();
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

Status DataPlane::fetch_rows_of(const std::vector<ExpectedMessage>& messages) {
  std::vector<int> wanted;
  const MutexLock lock(rows_mutex_);
  for (const ExpectedMessage& message : messages) {
    if (!rows_.contains(message.peer)) wanted.push_back(message.peer);
  }
  return wanted.empty() ? Status::ok() : fetch_rows(wanted, Deadline::after(connect_timeout_));
}

Status DataPlane::fetch_rows(const std::vector<int>& wanted, Deadline deadline) {
  HVD_ASSIGN_OR_RETURN(auto found, session_->rows.rows(wanted, deadline));
  if (found.size() != wanted.size()) return Status::internal("the store has not one row for each rank");
  for (std::size_t i = 0; i < wanted.size(); ++i) rows_.emplace(wanted[i], std::move(found[i]));
  return Status::ok();
}

}  // namespace hvd::transport
