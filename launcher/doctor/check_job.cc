#include "launcher/doctor/check_job.h"

#include <signal.h>

#include <utility>

#include "launcher/process/signal_watcher.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kLinesOfError = 8;

double now_of_this_host() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

CheckJob::CheckJob(MainLoop& loop, std::size_t most_output, std::function<void()> on_over)
    : loop_(loop), most_output_(most_output), on_over_(std::move(on_over)) {}

Result<std::unique_ptr<PipeReader>> CheckJob::read(Fd fd, std::function<void(ByteSpan)> on_data) {
  return PipeReader::open(loop_, std::move(fd), {.on_data = std::move(on_data), .on_end = [this] { maybe_over(); }});
}

Status CheckJob::start(const std::vector<std::string>& arguments) {
  HVD_ASSIGN_OR_RETURN(Pipe out, make_pipe());
  HVD_ASSIGN_OR_RETURN(Pipe err, make_pipe());
  ChildOptions options;
  options.file = "/proc/self/exe";
  options.argv = {"horovodrun"};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.stdout_fd = out.write_end.get();
  options.stderr_fd = err.write_end.get();
  started_ = SteadyClock::now();
  HVD_ASSIGN_OR_RETURN(child_, Child::spawn(loop_, options, [this](ExitStatus) {
                         exited_ = true;
                         maybe_over();
                       }));
  HVD_ASSIGN_OR_RETURN(out_, read(std::move(out.read_end), [this](ByteSpan bytes) {
                         if (output_.empty()) arrived_ = now_of_this_host();
                         keep(as_text(bytes));
                       }));
  HVD_ASSIGN_OR_RETURN(err_, read(std::move(err.read_end), [this](ByteSpan bytes) { errors_.add(bytes); }));
  return Status::ok();
}

void CheckJob::keep(std::string_view text) {
  const std::size_t room = most_output_ - output_.size();
  output_ += text.substr(0, room);
  if (text.size() > room && problem_.empty()) {
    problem_ = "too much output: more than " + std::to_string(most_output_) + " bytes, the rest is not read";
  }
}

void CheckJob::maybe_over() {
  if (told_ || !exited_ || !out_ || !err_) return;
  // What one that was killed has left behind may keep its pipes open.
  if (!was_killed_ && (!out_->ended() || !err_->ended())) return;
  told_ = true;
  seconds_ = std::chrono::duration<double>(SteadyClock::now() - started_).count();
  on_over_();
}

void CheckJob::end(int signal, int user_signal) {
  if (told_) return;
  if (output_.empty() && problem_.empty()) problem_ = "ended by " + signal_name(user_signal);
  if (!child_) return;
  was_killed_ = signal == SIGKILL;
  child_->kill_group(signal);
  maybe_over();
}

std::string CheckJob::error() const {
  std::string text = problem_;
  for (const std::string& line : errors_.last_lines(kLinesOfError)) {
    if (line.starts_with("Process name: ") || line.starts_with("Exit code: ")) continue;  // for scripts
    text += (text.empty() ? "" : "; ") + line;
  }
  return text;
}

}  // namespace hvd::launcher
