// What JobDriver does with the frames of its agents.
#include "launcher/job/job_driver.h"
#include "runtime/base/failpoint.h"

namespace hvd::launcher {

void JobDriver::fleet_frame(int agent, const Frame& frame) {
  const Status status = handle(agent, frame);
  if (status.is_ok()) return;
  fleet_.fail(agent, "host " + host_name(agent) + ": " + status.message());
}

void JobDriver::fleet_lost(int agent, const std::string& reason) {
  stacks_.agent_answered(agent);
  for (const auto& [number, slot] : job_->roster().slots()) {
    if (slot.agent != agent) continue;
    input_forwarder_.process_ended(number);
    output_.output_end(number, false);  // nothing more is printed there: no bar stays
    output_.output_end(number, true);
  }
  lose_agent(agent, reason);
  agent_gone(agent);
}

void JobDriver::fleet_is_flat(const std::string& why) {
  output_.message("--fan-out " + std::to_string(*plan_.config.fan_out) +
                  ": hosts that others were to start are started from here instead: " + why);
}

// An agent may speak only of its own slots, and of processes that it was told to start.
template <typename Message>
Result<Message> JobDriver::of_its_slot(int agent, Result<Message> message) const {
  if (!message.is_ok()) return message;
  const Incarnation process = message.value().process;
  const auto& slots = job_->roster().slots();
  const auto found = slots.find(process.slot);
  if (found == slots.end() || found->second.agent != agent) {
    return Status::invalid_argument("its agent speaks of slot " + std::to_string(process.slot) +
                                    ", which is not there");
  }
  if (process.number > found->second.incarnation) {
    return Status::invalid_argument("its agent speaks of incarnation " + std::to_string(process.number) + " of slot " +
                                    std::to_string(process.slot) + ", which was not started");
  }
  return message;
}

Status JobDriver::handle(int agent, const Frame& frame) {
  switch (frame.type) {
    case FrameType::kHello: return handle_hello(agent, frame);
    case FrameType::kOutput: return handle_output(agent, frame);
    case FrameType::kOutputEnd: return handle_output_end(agent, frame);
    case FrameType::kStarted:
    case FrameType::kNotStarted:
    case FrameType::kEnded:
    case FrameType::kFailing:
    case FrameType::kInputTaken:
    case FrameType::kStalled:
    case FrameType::kWorked:
    case FrameType::kStopped: return handle_process(agent, frame);
    case FrameType::kAlive: return Status::ok();
    case FrameType::kStacks:
    case FrameType::kStacksEnd: return handle_stacks(agent, frame);
    case FrameType::kDraining: {
      if (!elastic_) return Status::invalid_argument("its agent wants to leave a job that is not elastic");
      HVD_ASSIGN_OR_RETURN(const auto message, decode<DrainingMessage>(frame.payload));
      return elastic_->draining(agent, message);
    }
    case FrameType::kNotice: {
      HVD_ASSIGN_OR_RETURN(const auto message, decode<TextMessage>(frame.payload));
      output_.message("host " + host_name(agent) + ": " + message.text);
      return Status::ok();
    }
    case FrameType::kError: {
      HVD_ASSIGN_OR_RETURN(const auto message, decode<TextMessage>(frame.payload));
      return Status::internal("its agent says: " + message.text);
    }
    case FrameType::kDone:
      HVD_FAILPOINT("driver.done");
      fleet_.close_lease(agent);
      apply(job_->agent_done(agent, SteadyClock::now()));
      agent_gone(agent);
      return Status::ok();
    default: return Status::invalid_argument("its agent sent a frame that only the launcher sends");
  }
}

Status JobDriver::handle_hello(int agent, const Frame& frame) {
  HVD_FAILPOINT_RETURN("driver.hello");
  HVD_ASSIGN_OR_RETURN(const auto message, decode<HelloMessage>(frame.payload));
  if (message.version != HVD_VERSION) {
    return Status::precondition("the agent there is of version " + message.version + ", this is " + HVD_VERSION +
                                ": install the same version on all hosts");
  }
  fleet_.open_below(agent);
  events_.host_ready(host_name(agent));
  apply(job_->agent_ready(agent, SteadyClock::now()));
  if (job_->roster().count(Roster::AgentState::kWaiting) == 0) output_.status("");
  return Status::ok();
}

// What an earlier process of a slot still prints is its slot's output like any other.
Status JobDriver::handle_output(int agent, const Frame& frame) {
  HVD_FAILPOINT_RETURN("driver.output");
  HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<OutputMessage>(frame.payload)));
  if (message.stream != OutputStream::kResult) {
    output_.output(message.process.slot, message.stream == OutputStream::kStderr, message.bytes);
  } else if (results_) {
    results_->result(message.process, message.bytes);
  }
  output_progress();
  return Status::ok();
}

Status JobDriver::handle_output_end(int agent, const Frame& frame) {
  HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<OutputEndMessage>(frame.payload)));
  if (message.stream != OutputStream::kResult) {
    output_.output_end(message.process.slot, message.stream == OutputStream::kStderr);
  }
  return Status::ok();
}

Status JobDriver::handle_stacks(int agent, const Frame& frame) {
  if (frame.type == FrameType::kStacksEnd) {
    stacks_.agent_answered(agent);
    return Status::ok();
  }
  HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<StacksMessage>(frame.payload)));
  const int rank = job_->roster().slot(message.process.slot).placement.rank;
  stacks_.stacks(rank, "rank " + std::to_string(rank) + " on host " + host_name(agent), message.text);
  return Status::ok();
}

Status JobDriver::handle_process(int agent, const Frame& frame) {
  HVD_FAILPOINT_RETURN("driver.process");
  const TimePoint now = SteadyClock::now();
  if (frame.type == FrameType::kStarted) {
    HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<StartedMessage>(frame.payload)));
    note_start(message.process, message.pid, now);
    apply(job_->process_started(message.process, message.pid, now));
    if (is_latest(message.process)) input_forwarder_.process_started(message.process.slot);
  } else if (frame.type == FrameType::kNotStarted) {
    HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<NotStartedMessage>(frame.payload)));
    if (is_latest(message.process)) input_forwarder_.process_ended(message.process.slot);
    note_no_start(message);
    apply(job_->process_not_started(message.process, message.code, message.reason, now));
  } else if (frame.type == FrameType::kFailing) {
    HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<FailingMessage>(frame.payload)));
    job_->process_failing(message.process, message.is_leaving);
  } else if (frame.type == FrameType::kStalled) {
    HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<StalledMessage>(frame.payload)));
    show_stall(message.rank);
  } else if (frame.type == FrameType::kWorked) {
    HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<WorkedMessage>(frame.payload)));
    ledger_.add_work(message.process, message.work);
  } else if (frame.type == FrameType::kStopped) {
    HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<StoppedMessage>(frame.payload)));
    apply(job_->process_stopped(message.process, message.is_stopped, now));
  } else if (frame.type == FrameType::kInputTaken) {
    HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<InputTakenMessage>(frame.payload)));
    if (is_latest(message.process)) input_forwarder_.process_took(message.process.slot, message.size);
  } else {
    HVD_ASSIGN_OR_RETURN(const auto message, of_its_slot(agent, decode<EndedMessage>(frame.payload)));
    if (is_latest(message.process)) input_forwarder_.process_ended(message.process.slot);
    const ExitStatus status{.code = message.code,
                            .signal = message.signal,
                            .memory_kills = message.memory_kills,
                            .of_group = message.of_group};
    note_end(message.process, status, now);
    apply(job_->process_ended(message.process, status, now));
  }
  return Status::ok();
}

}  // namespace hvd::launcher
