#include "launcher/discovery/discovery_runner.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launcher/hosts/host_list.h"
#include "runtime/base/failpoint.h"

namespace hvd::launcher {

DiscoveryRunner::DiscoveryRunner(MainLoop& loop, Options options, Callbacks callbacks)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      next_(loop.get(), [this] { look(); }),
      limit_(loop.get(), [this] { limit_reached(); }) {}

DiscoveryRunner::~DiscoveryRunner() { stop(); }

void DiscoveryRunner::start() { is_fixed() ? listed(options_.fixed) : look(); }

void DiscoveryRunner::look() {
  if (options_.hostfile.empty()) return run_script();
  // A pipe would hold up the loop.
  Result<std::string> text = read_host_text(options_.hostfile, InputKind::kFileOnly);
  if (!text.is_ok()) return failed(text.status().message());
  auto hosts = watch_.read(std::move(text).value(), options_.hostfile);
  if (!hosts.is_ok()) return failed(hosts.status().message());
  hosts.value() ? listed(std::move(*hosts.value())) : next_.start(kPause);
}

void DiscoveryRunner::stop() {
  stopped_ = true;
  next_.stop();
  limit_.stop();
  end_script();
}

// Its guard ends it, and what it has started; also a guard that somebody has stopped.
void DiscoveryRunner::end_script() {
  if (!child_) return;
  child_->kill(SIGTERM);
  child_->kill(SIGCONT);
}

void DiscoveryRunner::run_script() {
  output_.clear();
  status_.reset();
  was_late_ = false;
  const Status status = spawn();
  if (!status.is_ok()) return failed(status.message());
  limit_.start(limit());
}

Millis DiscoveryRunner::limit() const {
  return has_listed_ ? kScriptLimit : std::clamp(options_.first_limit, kPause, kScriptLimit);
}

Status DiscoveryRunner::spawn() {
  HVD_FAILPOINT_RETURN("discovery.spawn");
  HVD_ASSIGN_OR_RETURN(Pipe pipe, make_pipe());
  ChildOptions options;
  options.file = "/proc/self/exe";  // what runs now, even if a new version was installed meanwhile
  options.argv = {"horovodrun", kGuardScriptFlag, std::to_string(::getpid()), options_.script};
  options.stdout_fd = pipe.write_end.get();
  options.stderr_fd = STDERR_FILENO;
  HVD_ASSIGN_OR_RETURN(reader_, PipeReader::open(loop_, std::move(pipe.read_end),
                                                 {.on_data =
                                                      [this](ByteSpan bytes) {
                                                        if (output_.size() <= kMaxDiscoveryBytes) {
                                                          output_ += as_text(bytes);
                                                        }
                                                      },
                                                  .on_end = [this] { maybe_ended(); }}));
  HVD_ASSIGN_OR_RETURN(child_, Child::spawn(loop_, options, [this](ExitStatus status) {
                         status_ = status;
                         maybe_ended();
                       }));
  return Status::ok();
}

// What it has left behind may hold its stdout for as long as it likes.
void DiscoveryRunner::limit_reached() {
  end_script();
  if (!status_) {
    was_late_ = true;
    return;
  }
  reader_->close();
  ended();
}

void DiscoveryRunner::maybe_ended() {
  if (stopped_ || !status_) return;
  if (!reader_->ended()) return limit_.start(kOutputGrace);
  ended();
}

void DiscoveryRunner::ended() {
  HVD_FAILPOINT("discovery.ended");
  limit_.stop();
  if (was_late_) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit()).count();
    return failed("it ran for more than " + std::to_string(seconds) + " s" +
                  (limit() < kScriptLimit ? " (--elastic-timeout)" : "") + " and was killed");
  }
  if (!status_->ok()) return failed("it " + describe(*status_));
  Result<std::vector<HostSpec>> hosts = parse_discovered_hosts(output_, options_.default_slots);
  if (!hosts.is_ok()) return failed(hosts.status().message());
  listed(std::move(hosts).value());
}

void DiscoveryRunner::failed(const std::string& what) {
  next_.start(kPause);
  const std::string which =
      options_.script.empty() ? "--watch-hostfile: " : "--host-discovery-script " + options_.script + ": ";
  callbacks_.on_failure(which + what);
}

void DiscoveryRunner::listed(std::vector<HostSpec> hosts) {
  HVD_FAILPOINT("discovery.listed");
  has_listed_ = true;
  hosts_ = std::move(hosts);
  // Name servers may learn of a host later than the script, or be away for a while.
  const bool asks_again = SteadyClock::now() >= asks_again_;
  std::map<std::string, ResolvedHost> known;
  std::vector<std::string> unknown;
  for (const HostSpec& host : hosts_) {
    const auto found = addresses_.find(host.name);
    const bool is_known = found != addresses_.end() && !(found->second.addresses.empty() && asks_again);
    is_known ? void(known.insert(*found)) : unknown.push_back(host.name);
  }
  addresses_ = std::move(known);  // who comes back later may have another address
  if (unknown.empty()) return deliver();
  resolver_ = std::make_unique<HostResolver>(
      loop_, unknown, options_.ssh_program, options_.lookup_patience,
      [this, unknown](const std::vector<ResolvedHost>& found) { resolved(unknown, found); });
  resolver_->start();
}

void DiscoveryRunner::resolved(const std::vector<std::string>& names, const std::vector<ResolvedHost>& found) {
  for (std::size_t i = 0; i < names.size(); ++i) addresses_[names[i]] = found[i];
  asks_again_ = SteadyClock::now() + kAskAgain;
  deliver();
}

void DiscoveryRunner::deliver() {
  if (stopped_) return;
  if (!is_fixed()) next_.start(kPause);
  callbacks_.on_hosts(hosts_, addresses_);
}

}  // namespace hvd::launcher
