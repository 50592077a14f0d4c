// What JobDriver does with the frames of its agents.
#include "launcher/job/job_driver.h"

namespace hvd::launcher {

void JobDriver::fleet_frame(int agent, const Frame& frame) {
  const Status status = handle(agent, frame);
  if (status.is_ok()) return;
  fleet_.drop(agent);
  fleet_lost(agent, "host " + host_name(agent) + ": " + status.message());
}

void JobDriver::fleet_lost(int agent, const std::string& reason) {
  apply(job_.agent_lost(agent, reason, SteadyClock::now()));
}

// An agent may speak only of the ranks that it was given.
template <typename Message>
Result<Message> JobDriver::of_its_rank(int agent, Result<Message> message) const {
  if (!message.is_ok()) return message;
  const int rank = message.value().rank;
  const bool is_its = rank >= 0 && static_cast<std::size_t>(rank) < agent_of_rank_.size() &&
                      agent_of_rank_[static_cast<std::size_t>(rank)] == agent;
  if (is_its) return message;
  return Status::invalid_argument("its agent speaks of rank " + std::to_string(rank) + ", which is not there");
}

Status JobDriver::handle(int agent, const Frame& frame) {
  switch (frame.type) {
    case FrameType::kHello: return handle_hello(agent, frame);
    case FrameType::kOutput:
    case FrameType::kOutputEnd: return handle_output(agent, frame);
    case FrameType::kRankStarted:
    case FrameType::kRankNotStarted:
    case FrameType::kRankExited:
    case FrameType::kRankFailing:
    case FrameType::kInputTaken: return handle_rank(agent, frame);
    case FrameType::kNotice: {
      HVD_ASSIGN_OR_RETURN(const TextMessage message, decode_text(frame.payload));
      output_.message("host " + host_name(agent) + ": " + message.text);
      return Status::ok();
    }
    case FrameType::kError: {
      HVD_ASSIGN_OR_RETURN(const TextMessage message, decode_text(frame.payload));
      return Status::internal("its agent says: " + message.text);
    }
    case FrameType::kDone:
      fleet_.close_lease(agent);
      apply(job_.agent_done(agent, SteadyClock::now()));
      return Status::ok();
    default: return Status::invalid_argument("its agent sent a frame that only the launcher sends");
  }
}

Status JobDriver::handle_hello(int agent, const Frame& frame) {
  HVD_ASSIGN_OR_RETURN(const HelloMessage message, decode_hello(frame.payload));
  if (message.version != HVD_VERSION) {
    return Status::precondition("the agent there is of version " + message.version + ", this is " + HVD_VERSION +
                                ": install the same version on all hosts");
  }
  apply(job_.agent_ready(agent, SteadyClock::now()));
  return Status::ok();
}

Status JobDriver::handle_output(int agent, const Frame& frame) {
  if (frame.type == FrameType::kOutputEnd) {
    HVD_ASSIGN_OR_RETURN(const OutputEndMessage message, of_its_rank(agent, decode_output_end(frame.payload)));
    output_.output_end(message.rank, message.is_stderr);
    return Status::ok();
  }
  HVD_ASSIGN_OR_RETURN(const OutputMessage message, of_its_rank(agent, decode_output(frame.payload)));
  output_.output(message.rank, message.is_stderr, message.bytes);
  output_progress();
  return Status::ok();
}

Status JobDriver::handle_rank(int agent, const Frame& frame) {
  const TimePoint now = SteadyClock::now();
  if (frame.type == FrameType::kRankStarted) {
    HVD_ASSIGN_OR_RETURN(const RankStartedMessage message, of_its_rank(agent, decode_rank_started(frame.payload)));
    apply(job_.rank_started(message.rank, message.pid, now));
    input_forwarder_.rank_started(message.rank);
  } else if (frame.type == FrameType::kRankNotStarted) {
    HVD_ASSIGN_OR_RETURN(const RankNotStartedMessage message,
                         of_its_rank(agent, decode_rank_not_started(frame.payload)));
    input_forwarder_.rank_ended(message.rank);
    apply(job_.rank_not_started(message.rank, message.code, message.reason, now));
  } else if (frame.type == FrameType::kRankFailing) {
    HVD_ASSIGN_OR_RETURN(const RankFailingMessage message, of_its_rank(agent, decode_rank_failing(frame.payload)));
    message.is_leaving ? job_.rank_leaving(message.rank) : job_.rank_failing(message.rank);
  } else if (frame.type == FrameType::kInputTaken) {
    HVD_ASSIGN_OR_RETURN(const InputTakenMessage message, of_its_rank(agent, decode_input_taken(frame.payload)));
    input_forwarder_.rank_took(message.rank, message.size);
  } else {
    HVD_ASSIGN_OR_RETURN(const RankExitedMessage message, of_its_rank(agent, decode_rank_exited(frame.payload)));
    input_forwarder_.rank_ended(message.rank);
    apply(job_.rank_exited(message.rank, {.code = message.code, .signal = message.signal}, now));
  }
  return Status::ok();
}

}  // namespace hvd::launcher
