// What the driver tells the DataPlane: frames, the end of connections, the time to check them.
#include "runtime/transport/data/data_plane.h"

namespace hvd::transport {

Result<std::shared_ptr<MessageContext>> DataPlane::context_of(const FrameHeader& header) {
  const MutexLock lock(contexts_mutex_);
  const auto found = contexts_.find(header.context);
  if (found != contexts_.end()) return found->second;
  if (known_ids_.contains(header.context)) return std::shared_ptr<MessageContext>();
  if (contexts_.size() >= known_ids_.size() + kMaxUnknownContexts) {
    return Status::precondition("it uses more than " + std::to_string(kMaxUnknownContexts) + " unknown contexts");
  }
  return contexts_.emplace(header.context, make_message_context(header.context)).first->second;
}

std::vector<std::shared_ptr<MessageContext>> DataPlane::all_contexts() {
  const MutexLock lock(contexts_mutex_);
  std::vector<std::shared_ptr<MessageContext>> all;
  for (const auto& [id, context] : contexts_) all.push_back(context);
  return all;
}

Status DataPlane::on_eager(int from, const FrameHeader& header, ByteSpan payload) {
  HVD_ASSIGN_OR_RETURN(const auto context, context_of(header));
  if (!context) {
    link(from).consumed_eager(payload.size());
    return Status::ok();
  }
  Status handled = context->on_eager(from, header, payload);
  progress_.notify();
  return handled;
}

Status DataPlane::on_notice(int from, const FrameHeader& header, ByteSpan payload) {
  HVD_ASSIGN_OR_RETURN(const auto context, context_of(header));
  if (!context) return Status::ok();
  Status handled;
  switch (header.type) {
    case FrameType::kRequest: handled = context->on_request(from, header); break;
    case FrameType::kCredit: handled = context->on_credit(from, header); break;
    case FrameType::kBegin: handled = context->on_begin(from, header); break;
    default: context->fail(Status::precondition(std::string(as_text(payload)))); break;
  }
  progress_.notify();
  return handled;
}

Result<RecvOp*> DataPlane::on_data_begin(int from, const FrameHeader& header) {
  HVD_ASSIGN_OR_RETURN(const auto context, context_of(header));
  if (!context) return static_cast<RecvOp*>(nullptr);
  return context->on_data_begin(from, header);
}

void DataPlane::on_data_end(const FrameHeader& header, RecvOp& op) {
  const auto context = context_of(header);
  if (!context.is_ok() || !context.value()) return;
  context.value()->on_data_end(header, op);
  progress_.notify();
}

void DataPlane::on_sent(int to, const SentMessage& message) {
  const auto context = find_context(message.context);
  if (!context) return;
  context->on_sent(to, message);
  progress_.notify();
}

void DataPlane::on_lost(int peer_rank, const Status& why) {
  // The link refuses new operations by now, so none can slip in behind this.
  for (const auto& context : all_contexts()) context->fail_peer(peer_rank, why);
  progress_.notify();
}

bool DataPlane::on_io(void* tag, bool readable, bool writable) {
  return static_cast<Connection*>(tag)->on_io(readable, writable);
}

void DataPlane::check_liveness() {
  for_each_link([](PeerLink& link) { link.check_liveness(); });
}

}  // namespace hvd::transport
