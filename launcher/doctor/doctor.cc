#include "launcher/doctor/doctor.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "launcher/doctor/examination.h"
#include "launcher/hosts/host_list.h"
#include "launcher/process/own_process.h"

namespace hvd::launcher {
namespace {

// Seconds for a job once its ranks run, and then for its end.
constexpr const char* kLookTimeout = "60";
constexpr const char* kRoutesTimeout = "200";  // runtime/engine/network_routes.cc bounds each step
constexpr const char* kJobGrace = "5";
constexpr std::size_t kLinesOfError = 8;

double now_of_this_host() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Each job that runs has a rendezvous, which takes one of the ports on this host.
std::size_t jobs_at_a_time(const PortRange& ports) {
  if (ports.is_any()) return Doctor::kMostAtATime;
  return std::min<std::size_t>(Doctor::kMostAtATime, static_cast<std::size_t>(ports.last - ports.first) + 1);
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

// The job on one host.
struct Doctor::Patient {
  Patient(Doctor& doctor, HostSpec spec)
      : host(std::move(spec)), job(doctor.loop_, kMostFacts, [&doctor] { doctor.ended(); }) {}

  const HostSpec host;
  CheckJob job;

  HostReport report() const {
    return {
        .host = host, .facts = job.output(), .error = job.error(), .seconds = job.seconds(), .arrived = job.arrived()};
  }
};

Doctor::Doctor(MainLoop& loop, CheckConfig config, std::uint64_t ignored)
    : loop_(loop),
      config_(std::move(config)),
      at_a_time_(jobs_at_a_time(config_.ports)),
      grace_(loop.get(), [this] { end_all(SIGKILL); }),
      signals_(loop, without(ignored, {SIGINT, SIGTERM, SIGHUP}), [this](int signal) { signal_received(signal); }) {
  for (const HostSpec& host : config_.hosts) {
    patients_.push_back(std::make_unique<Patient>(*this, host));
  }
}

Doctor::~Doctor() = default;

// A rank on each of the hosts, which prints what `asks` stands for.
std::vector<std::string> Doctor::arguments(const std::vector<HostSpec>& hosts, const char* timeout,
                                           const char* asks) const {
  std::vector<HostSpec> one_each = hosts;
  for (HostSpec& host : one_each) host.slots = 1;
  std::vector<std::string> words = {"-np",          std::to_string(hosts.size()),
                                    "-H",           host_list_text(one_each),
                                    "--stdin",      "none",
                                    "--timeout",    timeout,
                                    "--kill-grace", kJobGrace};
  if (hosts.size() == 1) words.emplace_back("--no-prefix");
  words.insert(words.end(), config_.flags.begin(), config_.flags.end());
  words.insert(words.end(), config_.python.begin(), config_.python.end());
  words.emplace_back(asks);
  return words;
}

std::vector<HostReport> Doctor::look_at_hosts() {
  left_ = patients_.size();
  start_more();
  while (left_ > 0) loop_.run();
  std::vector<HostReport> reports;
  reports.reserve(patients_.size());
  for (const auto& patient : patients_) reports.push_back(patient->report());
  return reports;
}

Routes Doctor::try_routes(const std::vector<HostSpec>& hosts) {
  const bool has_news = hosts.size() > 1 || (hosts.size() == 1 && !config_.ports.is_any());
  if (!has_news || signal_ != 0) return {};
  routes_ = std::make_unique<CheckJob>(loop_, kMostRoutes, [this] { ended(); });
  left_ = 1;
  const Status status = routes_->start(arguments(hosts, kRoutesTimeout, "--routes"));
  if (!status.is_ok()) {
    routes_->fail(status.message());
    left_ = 0;
  }
  while (left_ > 0) loop_.run();
  return read_routes(hosts, routes_->output(), routes_->error());
}

void Doctor::start_more() {
  while (started_ < patients_.size() && started_ - (patients_.size() - left_) < at_a_time_) {
    Patient& patient = *patients_[started_++];
    const Status status = patient.job.start(arguments({patient.host}, kLookTimeout, "--facts"));
    if (status.is_ok()) continue;
    patient.job.fail(status.message());
    --left_;
  }
}

void Doctor::ended() {
  --left_;
  if (!routes_) start_more();
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
  for (const auto& patient : patients_) patient->job.end(signal, signal_);
  if (routes_) routes_->end(signal, signal_);
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
  Examination all;
  all.reports = doctor.look_at_hosts();
  all.checks = check_hosts(all.reports);
  const std::vector<std::size_t> well = hosts_that_are_well(all.checks);
  std::vector<HostSpec> hosts;
  hosts.reserve(well.size());
  for (const std::size_t host : well) hosts.push_back(all.reports[host].host);
  all.routes = doctor.try_routes(hosts);
  for (std::size_t i = 0; i < all.routes.ports.size(); ++i) {
    if (!all.routes.ports[i].name.empty()) all.checks[well[i]].push_back(all.routes.ports[i]);
  }
  std::fputs((json ? examination_json(all) : examination_text(all)).c_str(), stdout);
  if (doctor.signal() != 0) return 128 + doctor.signal();
  return all.count().failures > 0 ? 1 : 0;
}

}  // namespace hvd::launcher
