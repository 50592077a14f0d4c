#include "launcher/agent/slot_process.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

constexpr Millis kOutputGrace{50};
constexpr Millis kRetirement{500};  // for output pipes that have no writer of ours any more

std::string exec_failure(const std::string& command, int error) {
  const std::string hint = command.ends_with(".py") ? " (python " + command + "?)" : "";
  if (error == ENOENT) return "command not found: " + command + hint;
  return "cannot execute " + command + ": " + std::strerror(error) + hint;
}

}  // namespace

SlotProcess::SlotProcess(MainLoop& loop, Incarnation self, ProcessEvents& events)
    : loop_(loop),
      self_(self),
      events_(events),
      output_grace_(loop.get(), [this] { maybe_report_end(true); }),
      retirement_(loop.get(), [this] { end_output(); }) {}

void SlotProcess::start(const ProcessCommand& command) {
  const Status status = try_start(command);
  if (status.is_ok()) return;
  failed_to_start_ = true;
  close_output();
  events_.process_not_started(self_, 126,
                              "cannot start a rank with " + std::to_string(command.argv.size()) + " arguments and " +
                                  std::to_string(command.env.size()) + " environment variables: " + status.message());
}

Status SlotProcess::open_stream(Fd read_end, OutputStream stream) {
  HVD_ASSIGN_OR_RETURN(
      readers_[static_cast<std::size_t>(stream)],
      PipeReader::open(loop_, std::move(read_end),
                       {.on_data = [this, stream](ByteSpan bytes) { events_.process_output(self_, stream, bytes); },
                        .on_end =
                            [this, stream] {
                              events_.process_output_end(self_, stream);
                              maybe_report_end(false);
                            }}));
  return Status::ok();
}

Status SlotProcess::open_input(Fd write_end) {
  HVD_ASSIGN_OR_RETURN(stdin_, PipeWriter::open(loop_, std::move(write_end),
                                                {.on_progress = [this] { input_moved(); },
                                                 .on_error = [this](const Status&) { input_moved(); }}));
  return Status::ok();
}

void SlotProcess::write_input(Bytes bytes) {
  if (bytes.empty()) {
    input_ended_ = true;
  } else {
    input_pending_ += bytes.size();
    if (stdin_) stdin_->write(std::move(bytes), true);  // it may be a password
  }
  input_moved();
}

void SlotProcess::input_moved() {
  const std::size_t left = stdin_ && !stdin_->broken() ? stdin_->queued() : 0;
  const std::size_t taken = input_pending_ - left;
  input_pending_ = left;
  if (taken > 0) events_.process_took_input(self_, taken);
  if (stdin_ && input_ended_ && left == 0) stdin_->close();
}

Status SlotProcess::try_start(const ProcessCommand& command) {
  HVD_FAILPOINT_RETURN("slot.start");
  // Real pipes: libuv would make sockets, and then a rank could not open /dev/stdout.
  HVD_ASSIGN_OR_RETURN(Pipe out, make_pipe());
  HVD_ASSIGN_OR_RETURN(Pipe err, make_pipe());
  HVD_ASSIGN_OR_RETURN(Pipe exec, make_pipe());
  Pipe in;
  if (command.has_input) {
    HVD_ASSIGN_OR_RETURN(in, make_pipe());
  }
  Pipe result;
  if (command.gives_result) {
    HVD_ASSIGN_OR_RETURN(result, make_pipe());
  }
  ChildOptions options;
  options.file = "/proc/self/exe";  // this very program, wherever it is and even if it was replaced meanwhile
  options.argv =
      exec_rank_argv(::getpid(), command.descriptor_limit, command.ignored_signals, command.cpus, command.argv);
  options.env.emplace();
  for (const auto& [name, value] : command.env) options.env->push_back(name + "=" + value);
  options.cwd = command.cwd;
  options.stdin_fd = in.read_end.get();
  options.stdout_fd = out.write_end.get();
  options.stderr_fd = err.write_end.get();
  options.extra_fds = {exec.write_end.get()};
  if (command.gives_result) options.extra_fds.push_back(result.write_end.get());  // kResultFd
  HVD_ASSIGN_OR_RETURN(child_, Child::spawn(loop_, options, [this](ExitStatus status) {
                         status_ = std::make_unique<ExitStatus>(status);
                         output_grace_.start(kOutputGrace);
                         maybe_report_end(false);
                       }));
  if (command.has_input) HVD_RETURN_IF_ERROR(open_input(std::move(in.write_end)));
  HVD_RETURN_IF_ERROR(open_stream(std::move(out.read_end), OutputStream::kStdout));
  HVD_RETURN_IF_ERROR(open_stream(std::move(err.read_end), OutputStream::kStderr));
  if (command.gives_result) HVD_RETURN_IF_ERROR(open_stream(std::move(result.read_end), OutputStream::kResult));
  const std::string name = command.argv[0];
  HVD_ASSIGN_OR_RETURN(
      exec_pipe_,
      PipeReader::open(
          loop_, std::move(exec.read_end),
          {.on_data = [this](ByteSpan bytes) { exec_error_.insert(exec_error_.end(), bytes.begin(), bytes.end()); },
           .on_end = [this, name] { exec_finished(name); }}));
  return Status::ok();
}

void SlotProcess::exec_finished(const std::string& program) {
  exec_done_ = true;
  failed_to_start_ = exec_error_.size() == sizeof(int);
  if (failed_to_start_) {
    int error = 0;
    std::memcpy(&error, exec_error_.data(), sizeof(error));
    return events_.process_not_started(self_, error == ENOENT ? 127 : 126, exec_failure(program, error));
  }
  events_.process_started(self_, child_->pid());
  if (status_) output_grace_.start(kOutputGrace);  // it has ended already, and that could not be told before
  maybe_report_end(false);
}

void SlotProcess::maybe_report_end(bool at_last) {
  if (!status_ || failed_to_start_ || end_reported_ || !exec_done_) return;
  if (!output_ended() && !at_last) return;
  end_reported_ = true;
  output_grace_.stop();
  events_.process_ended(self_, *status_);
}

void SlotProcess::kill(int signal) {
  if (child_) child_->kill(signal);
}

void SlotProcess::kill_group(int signal) {
  if (child_) child_->kill_group(signal);
}

void SlotProcess::pause_output(bool paused) {
  output_paused_ = paused;
  for (const auto& reader : readers_) {
    if (reader) paused ? reader->pause() : reader->resume();
  }
}

bool SlotProcess::output_ended() const {
  return std::all_of(readers_.begin(), readers_.end(), [](const auto& reader) { return !reader || reader->ended(); });
}

void SlotProcess::close_output() {
  for (const auto& reader : readers_) {
    if (reader) reader->close();
  }
}

void SlotProcess::retire() { retirement_.start(kRetirement); }

void SlotProcess::end_output() {
  if (output_paused_) return retire();  // it is we who do not read
  for (const auto stream : {OutputStream::kStdout, OutputStream::kStderr, OutputStream::kResult}) {
    const auto& reader = readers_[static_cast<std::size_t>(stream)];
    if (!reader || reader->ended()) continue;
    reader->close();
    events_.process_output_end(self_, stream);
  }
}

}  // namespace hvd::launcher
