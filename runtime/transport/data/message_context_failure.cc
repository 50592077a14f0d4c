// How a MessageContext ends: mismatches, lost peers, buffers that go early. And how to tell that it does not.
#include <algorithm>

#include "runtime/transport/data/message_context.h"

namespace hvd::transport {

// Both ends fail: what follows on this context could be anything. `from` is the other rank of the message.
void MessageContext::mismatch(int from, std::uint64_t slot, std::uint64_t sent, std::uint64_t expected) {
  const std::string text = "rank " + std::to_string(from) + " and rank " + std::to_string(own_rank_) +
                           " disagree on the size of a message: " + std::to_string(sent) + " bytes sent, " +
                           std::to_string(expected) + " bytes expected (context " + std::to_string(id_) + ", slot " +
                           std::to_string(slot) + ")";
  senders_(from).queue_notice({.type = FrameType::kFail, .context = id_, .slot = slot}, text);
  set_failed(Status::precondition(text));
}

void MessageContext::fail(const Status& why) {
  const MutexLock lock(mutex_);
  set_failed(why);
}

void MessageContext::set_failed(const Status& why) {
  if (!failed_.is_ok()) return;
  failed_ = why;
  for (auto& [id, slot] : slots_) {
    for (auto& op : slot.sends) op->completions->fail(why);
    for (auto& op : slot.recvs) {
      if (op->completions != nullptr) op->completions->fail(why);
    }
  }
}

void MessageContext::fail_peer(int rank, const Status& why) {
  const MutexLock lock(mutex_);
  for (auto& [id, slot] : slots_) {
    for (auto& op : slot.sends) {
      if (op->to == rank) op->completions->fail(why);
    }
    for (auto& op : slot.recvs) {
      if (op->completions != nullptr && op->accepts(rank)) op->completions->fail(why);
    }
  }
}

void MessageContext::cancel(const Completions& owner, const CancelQueued& cancel_queued) {
  const MutexLock lock(mutex_);
  for (auto& [id, slot] : slots_) {
    for (const auto& op : slot.sends) {
      if (op->completions != &owner) continue;
      if (op->state == SendOp::State::kQueued) cancel_queued(op->to, op->id);
      give_up(*op);
    }
    std::erase_if(slot.sends, [&](const auto& op) { return op->completions == &owner; });
    for (const auto& op : slot.recvs) {
      if (op->completions != &owner) continue;
      op->data = nullptr;
      op->completions = nullptr;
    }
    // A sender that has credit will send; its message is received into nothing.
    std::erase_if(slot.recvs, [](const auto& op) { return op->completions == nullptr && !op->credited(); });
  }
  std::erase_if(slots_, [](const auto& entry) { return entry.second.empty(); });
}

// The receiver waits for a message that will never come: both ends fail.
void MessageContext::give_up(const SendOp& op) {
  if (!failed_.is_ok()) return;
  const std::string text = "rank " + std::to_string(own_rank_) + " gave up a send to rank " + std::to_string(op.to) +
                           " (context " + std::to_string(id_) + ", slot " + std::to_string(op.slot) + ")";
  senders_(op.to).queue_notice({.type = FrameType::kFail, .context = id_, .slot = op.slot}, text);
  set_failed(Status::aborted(text));
}

void MessageContext::for_each_recv(const std::function<void(const RecvOp&)>& fn) {
  const MutexLock lock(mutex_);
  for (const auto& [id, slot] : slots_) {
    for (const auto& op : slot.recvs) fn(*op);
  }
}

ContextProgress MessageContext::progress() {
  const MutexLock lock(mutex_);
  ContextProgress now{events_, {}};
  const auto needs = [&now](int rank) {
    const auto at = std::lower_bound(now.waits_for.begin(), now.waits_for.end(), rank);
    if (at == now.waits_for.end() || *at != rank) now.waits_for.insert(at, rank);
  };
  for (const auto& [id, slot] : slots_) {
    for (const auto& op : slot.sends) {
      needs(op->to);
      if (op->state == SendOp::State::kQueued) now.moved += senders_(op->to).bytes_written();
    }
    for (const auto& op : slot.recvs) {
      if (op->completions == nullptr) continue;  // its buffer is gone
      if (op->from < 0) {
        for (const int source : op->sources) needs(source);
        continue;
      }
      needs(op->from);
      if (op->started) now.moved += senders_(op->from).bytes_read();
    }
  }
  return now;
}

}  // namespace hvd::transport
