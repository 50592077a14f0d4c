#include "launcher/doctor/doctor.h"

#include <signal.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "launcher/hosts/host_list.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/child.h"
#include "launcher/process/tail_buffer.h"
#include "runtime/base/deadline.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kLinesOfError = 8;
constexpr const char* kLookTimeout = "60";  // seconds for the look at a host, once its rank runs
constexpr const char* kLookGrace = "5";     // and then for its end

std::vector<int> signals_to_end_by(std::uint64_t ignored) {
  std::vector<int> signals = {SIGINT, SIGTERM, SIGHUP};
  std::erase_if(signals, [ignored](int signal) { return is_in(ignored, signal); });
  return signals;
}

double now_of_this_host() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

// The job on one host.
class Doctor::Patient {
 public:
  Patient(Doctor& doctor, HostSpec host) : doctor_(doctor) { report_.host = std::move(host); }

  Status start();
  HostReport take_report();
  void fail(const std::string& error) { problem_ = error; }
  // Ends its job, which may not have begun, by this signal, for the user's sake.
  void end(int signal, int user_signal);

 private:
  Result<std::unique_ptr<PipeReader>> read(Fd fd, std::function<void(ByteSpan)> on_data);
  void maybe_over();

  Doctor& doctor_;
  HostReport report_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<PipeReader> out_;
  std::unique_ptr<PipeReader> err_;
  TailBuffer errors_;
  std::string problem_;
  bool exited_ = false;
  bool told_ = false;
  bool was_killed_ = false;
  TimePoint started_;
};

Result<std::unique_ptr<PipeReader>> Doctor::Patient::read(Fd fd, std::function<void(ByteSpan)> on_data) {
  return PipeReader::open(doctor_.loop_, std::move(fd),
                          {.on_data = std::move(on_data), .on_end = [this] { maybe_over(); }});
}

Status Doctor::Patient::start() {
  const CheckConfig& config = doctor_.config_;
  HVD_ASSIGN_OR_RETURN(Pipe out, make_pipe());
  HVD_ASSIGN_OR_RETURN(Pipe err, make_pipe());
  HostSpec one = report_.host;
  one.slots = 1;
  ChildOptions options;
  options.file = "/proc/self/exe";
  options.argv = {"horovodrun", "-np",  "1",         "-H",         host_list_text({one}), "--no-prefix",
                  "--stdin",    "none", "--timeout", kLookTimeout, "--kill-grace",        kLookGrace};
  options.argv.insert(options.argv.end(), config.flags.begin(), config.flags.end());
  options.argv.insert(options.argv.end(), config.command.begin(), config.command.end());
  options.stdout_fd = out.write_end.get();
  options.stderr_fd = err.write_end.get();
  started_ = SteadyClock::now();
  HVD_ASSIGN_OR_RETURN(child_, Child::spawn(doctor_.loop_, options, [this](ExitStatus) {
                         exited_ = true;
                         maybe_over();
                       }));
  HVD_ASSIGN_OR_RETURN(out_, read(std::move(out.read_end), [this](ByteSpan bytes) {
                         if (report_.facts.empty()) report_.arrived = now_of_this_host();
                         if (report_.facts.size() < kMaxBytes) report_.facts += as_text(bytes);
                       }));
  HVD_ASSIGN_OR_RETURN(err_, read(std::move(err.read_end), [this](ByteSpan bytes) { errors_.add(bytes); }));
  return Status::ok();
}

void Doctor::Patient::maybe_over() {
  if (told_ || !exited_ || !out_ || !err_) return;
  // What one that was killed has left behind may keep its pipes open.
  if (!was_killed_ && (!out_->ended() || !err_->ended())) return;
  told_ = true;
  report_.seconds = std::chrono::duration<double>(SteadyClock::now() - started_).count();
  doctor_.ended();
}

void Doctor::Patient::end(int signal, int user_signal) {
  if (told_) return;
  if (report_.facts.empty() && problem_.empty()) problem_ = "ended by " + signal_name(user_signal);
  if (!child_) return;
  was_killed_ = signal == SIGKILL;
  child_->kill_group(signal);
  maybe_over();
}

HostReport Doctor::Patient::take_report() {
  report_.error = problem_;
  for (const std::string& line : errors_.last_lines(kLinesOfError)) {
    if (line.starts_with("Process name: ") || line.starts_with("Exit code: ")) continue;  // for scripts
    report_.error += (report_.error.empty() ? "" : "; ") + line;
  }
  return std::move(report_);
}

Doctor::Doctor(MainLoop& loop, CheckConfig config, std::uint64_t ignored)
    : loop_(loop),
      config_(std::move(config)),
      grace_(loop.get(), [this] { end_all(SIGKILL); }),
      signals_(loop, signals_to_end_by(ignored), [this](int signal) { signal_received(signal); }) {
  for (const HostSpec& host : config_.hosts) patients_.push_back(std::make_unique<Patient>(*this, host));
}

Doctor::~Doctor() = default;

std::vector<HostReport> Doctor::run() {
  left_ = patients_.size();
  start_more();
  while (left_ > 0) loop_.run();
  std::vector<HostReport> reports;
  reports.reserve(patients_.size());
  for (const auto& patient : patients_) reports.push_back(patient->take_report());
  return reports;
}

void Doctor::start_more() {
  while (started_ < patients_.size() && started_ - (patients_.size() - left_) < kMostAtATime) {
    Patient& patient = *patients_[started_++];
    const Status status = patient.start();
    if (status.is_ok()) continue;
    patient.fail(status.message());
    --left_;
  }
}

void Doctor::ended() {
  --left_;
  start_more();
  if (left_ == 0) loop_.stop();
}

// The jobs are in sessions of their own: the terminal's Ctrl-C does not reach them.
void Doctor::signal_received(int signal) {
  if (signal_ != 0) return end_all(SIGKILL);
  signal_ = signal;
  left_ -= patients_.size() - std::exchange(started_, patients_.size());  // no more are begun
  end_all(SIGTERM);
  grace_.start(kGrace);
  if (left_ == 0) loop_.stop();
}

void Doctor::end_all(int signal) {
  for (const auto& patient : patients_) patient->end(signal, signal_);
}

int run_check(CheckConfig config) {
  const std::uint64_t ignored = ignored_signals();
  ignore_io_signals();
  raise_descriptor_limit(4 * Doctor::kMostAtATime);
  const bool json = config.json;
  const std::vector<std::string> notices = config.notices;
  MainLoop loop;
  Doctor doctor(loop, std::move(config), ignored);
  for (const std::string& notice : notices) std::fprintf(stderr, "horovodrun: %s\n", notice.c_str());
  const std::vector<HostReport> reports = doctor.run();
  const auto checks = check_hosts(reports);
  std::fputs((json ? checks_json(reports, checks) : checks_text(reports, checks)).c_str(), stdout);
  if (doctor.signal() != 0) return 128 + doctor.signal();
  for (const auto& host : checks) {
    for (const HostCheck& check : host) {
      if (check.level == HostCheck::Level::kFail) return 1;
    }
  }
  return 0;
}

}  // namespace hvd::launcher
