#include "runtime/transport/data/message_context.h"

#include <algorithm>

namespace hvd::transport {

Status MessageContext::send(SendOp op) {
  const MutexLock lock(mutex_);
  ++events_;
  if (!failed_.is_ok()) return failed_;
  HVD_RETURN_IF_ERROR(senders_(op.to).lost());
  op.id = next_op_id_++;
  Slot& slot = slots_[op.slot];
  const bool behind =
      std::any_of(slot.sends.begin(), slot.sends.end(), [&](const auto& other) { return other->to == op.to; });
  slot.sends.push_back(std::make_unique<SendOp>(op));
  if (!behind) start_send(slot, *slot.sends.back());
  return Status::ok();
}

// Requires: no earlier send of this slot to the same rank is unfinished.
void MessageContext::start_send(Slot& slot, SendOp& op) {
  FrameSender& connection = senders_(op.to);
  if (op.size <= kMaxEager && connection.reserve_eager(op.size)) {
    op.state = SendOp::State::kQueued;
    connection.queue_eager(op, id_);
  } else if (take_credit(slot, op)) {
    op.state = SendOp::State::kQueued;
    connection.queue_message(op, id_);
  } else {
    op.state = SendOp::State::kRequested;
    connection.queue_notice({.type = FrameType::kRequest, .context = id_, .slot = op.slot, .total = op.size}, {});
  }
}

// Credit that came before its send. A small message has credit only as the answer to its request, a large one may have
// it in advance; so the two kinds are told apart by size.
bool MessageContext::take_credit(Slot& slot, SendOp& op) {
  const auto found = std::find_if(slot.credits.begin(), slot.credits.end(), [&](const Credit& credit) {
    return credit.from == op.to && (credit.total > kMaxEager) == (op.size > kMaxEager);
  });
  if (found == slot.credits.end()) return false;
  const std::uint64_t total = found->total;
  op.receive = found->receive;
  slot.credits.erase(found);
  --unmatched_;
  if (total == op.size) return true;
  mismatch(op.to, op.slot, op.size, total);
  return false;
}

Status MessageContext::recv(RecvOp op) {
  const MutexLock lock(mutex_);
  ++events_;
  if (!failed_.is_ok()) return failed_;
  Slot& slot = slots_[op.slot];
  const auto arrival =
      std::find_if(slot.arrivals.begin(), slot.arrivals.end(), [&](const Arrival& a) { return op.accepts(a.from); });
  if (arrival != slot.arrivals.end()) {
    const Arrival taken = std::move(*arrival);
    slot.arrivals.erase(arrival);
    --unmatched_;
    accept_arrival(*slot.recvs.emplace_back(std::make_unique<RecvOp>(std::move(op))), taken);
    return Status::ok();
  }
  for (const int source : op.sources) {
    Status lost = senders_(source).lost();
    if (lost.is_ok()) continue;
    drop_if_empty(op.slot);
    return lost;
  }
  RecvOp& posted = *slot.recvs.emplace_back(std::make_unique<RecvOp>(std::move(op)));
  if (posted.sources.size() == 1 && posted.size > kMaxEager) {
    posted.from = posted.sources[0];
    give_credit(posted);
  }
  return Status::ok();
}

void MessageContext::accept_arrival(RecvOp& op, const Arrival& arrival) {
  if (!arrival.is_request) senders_(arrival.from).consumed_eager(arrival.payload.size());
  if (arrival.total != op.size) return mismatch(arrival.from, op.slot, arrival.total, op.size);
  op.from = arrival.from;
  if (!arrival.is_request) return take_whole(op, arrival.payload);
  op.requested = true;
  give_credit(op);
}

void MessageContext::take_whole(RecvOp& op, ByteSpan payload) {
  if (op.data != nullptr && op.size > 0) std::memcpy(op.data, payload.data(), op.size);
  op.started = true;
  op.received = op.size;
  complete_in_order(op.slot, op.from);
}

void MessageContext::give_credit(RecvOp& op) {
  op.number = next_receive_++;
  credited_.emplace(op.number, &op);
  senders_(op.from).queue_notice(
      {.type = FrameType::kCredit, .context = id_, .slot = op.slot, .offset = op.number, .total = op.size}, {});
}

Status MessageContext::on_eager(int from, const FrameHeader& header, ByteSpan payload) {
  const MutexLock lock(mutex_);
  ++events_;
  if (!failed_.is_ok()) {
    senders_(from).consumed_eager(payload.size());
    return Status::ok();
  }
  Slot& slot = slots_[header.slot];
  const auto found =
      std::find_if(slot.recvs.begin(), slot.recvs.end(), [&](const auto& op) { return op->open_to(from); });
  if (found == slot.recvs.end()) {
    slot.arrivals.push_back({from, false, header.total, Bytes(payload.begin(), payload.end())});
    return check_unmatched(from);
  }
  senders_(from).consumed_eager(payload.size());
  RecvOp& op = **found;
  if (op.size != header.total) {
    mismatch(from, header.slot, header.total, op.size);
    return Status::ok();
  }
  op.from = from;
  take_whole(op, payload);
  return Status::ok();
}

Status MessageContext::on_request(int from, const FrameHeader& header) {
  const MutexLock lock(mutex_);
  ++events_;
  if (!failed_.is_ok()) return Status::ok();
  Slot& slot = slots_[header.slot];
  const auto found =
      std::find_if(slot.recvs.begin(), slot.recvs.end(), [&](const auto& op) { return op->open_to(from); });
  if (found == slot.recvs.end()) {
    slot.arrivals.push_back({from, true, header.total, {}});
    return check_unmatched(from);
  }
  RecvOp& op = **found;
  if (op.size != header.total) {
    mismatch(from, header.slot, header.total, op.size);
    return Status::ok();
  }
  op.requested = true;
  op.from = from;
  if (!op.credited()) give_credit(op);  // else request and credit have crossed
  return Status::ok();
}

Status MessageContext::on_credit(int from, const FrameHeader& header) {
  const MutexLock lock(mutex_);
  ++events_;
  if (!failed_.is_ok()) return Status::ok();
  Slot& slot = slots_[header.slot];
  const auto found = std::find_if(slot.sends.begin(), slot.sends.end(), [&](const auto& op) {
    return op->to == from && op->state == SendOp::State::kRequested &&
           (op->size > kMaxEager) == (header.total > kMaxEager);
  });
  if (found == slot.sends.end()) {
    slot.credits.push_back({from, header.total, header.offset});
    return check_unmatched(from);
  }
  SendOp& op = **found;
  if (op.size != header.total) {
    mismatch(from, header.slot, op.size, header.total);
    return Status::ok();
  }
  op.state = SendOp::State::kQueued;
  op.receive = header.offset;
  senders_(op.to).queue_message(op, id_);
  return Status::ok();
}

Status MessageContext::on_begin(int from, const FrameHeader& header) {
  const MutexLock lock(mutex_);
  ++events_;
  const auto found = credited_.find(header.slot);
  if (found == credited_.end() || found->second->from != from || found->second->started) {
    return failed_.is_ok()
               ? Status::precondition("it began a message for which no receive has credit (context " +
                                      std::to_string(id_) + ", receive " + std::to_string(header.slot) + ")")
               : Status::ok();
  }
  found->second->started = true;
  complete_in_order(found->second->slot, from);
  return Status::ok();
}

Result<RecvOp*> MessageContext::on_data_begin(int from, const FrameHeader& header) {
  const MutexLock lock(mutex_);
  const auto found = credited_.find(header.slot);
  if (found != credited_.end()) {
    RecvOp& op = *found->second;
    if (op.from == from && op.size == header.total && header.length <= op.size - op.begun) {
      op.begun += header.length;
      return &op;
    }
  }
  if (!failed_.is_ok()) return static_cast<RecvOp*>(nullptr);
  return Status::precondition("it sent data for which no receive has credit (context " + std::to_string(id_) +
                              ", receive " + std::to_string(header.slot) + ", offset " + std::to_string(header.offset) +
                              " of " + std::to_string(header.total) + ")");
}

void MessageContext::on_data_end(const FrameHeader& header, RecvOp& op) {
  const MutexLock lock(mutex_);
  ++events_;
  op.received += header.length;
  complete_in_order(op.slot, op.from);
}

// Pieces may come before the beginning, which keeps its place among requests and small messages: a receive that was
// gone by then would leave the next ones of its slot to the wrong messages. And who waits counts completions.
void MessageContext::complete_in_order(std::uint64_t slot, int from) {
  auto& recvs = slots_[slot].recvs;
  for (auto at = recvs.begin(); at != recvs.end();) {
    const RecvOp& op = **at;
    if (op.from != from) {
      ++at;
      continue;
    }
    if (!op.complete()) return;
    if (op.completions != nullptr) op.completions->complete_recv(from);
    credited_.erase(op.number);
    at = recvs.erase(at);
  }
  drop_if_empty(slot);
}

void MessageContext::on_sent(int to, const SentMessage& message) {
  const MutexLock lock(mutex_);
  ++events_;
  const auto found = slots_.find(message.slot);
  if (found == slots_.end()) return;
  auto& sends = found->second.sends;
  const auto op = std::find_if(sends.begin(), sends.end(), [&](const auto& s) { return s->id == message.op_id; });
  if (op == sends.end()) return;  // its buffer went meanwhile
  (*op)->completions->complete_send(to);
  sends.erase(op);
  const auto next = std::find_if(sends.begin(), sends.end(), [&](const auto& s) { return s->to == to; });
  if (next != sends.end()) start_send(found->second, **next);
  drop_if_empty(message.slot);
}

Status MessageContext::check_unmatched(int from) {
  if (++unmatched_ <= kMaxUnmatched) return Status::ok();
  return Status::precondition("rank " + std::to_string(from) + " sent more than " + std::to_string(kMaxUnmatched) +
                              " messages that nobody receives");
}

void MessageContext::drop_if_empty(std::uint64_t slot) {
  const auto found = slots_.find(slot);
  if (found != slots_.end() && found->second.empty()) slots_.erase(found);
}

}  // namespace hvd::transport
