#include "runtime/base/failpoint.h"

#ifdef HVD_FAILPOINTS

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include "runtime/base/fd.h"
#include "runtime/base/mutex.h"
#include "runtime/base/socket_io.h"

namespace hvd::failpoint {
namespace {

enum class Action { kNone, kExit, kAbort, kKill, kStop, kDelay, kError, kErrno, kShort };

// What happens at a point.
struct Deed {
  Action action = Action::kNone;
  int value = 0;  // milliseconds of kDelay, the number of kErrno
};

struct Armed {
  Deed deed;
  std::uint64_t hit = 1;
  bool and_later = false;
  std::uint64_t passages = 0;
};

constexpr int kExitCode = 70;
constexpr int kMaxDelay = 600'000;

// Of errors that the system gives where the product calls it.
constexpr std::pair<std::string_view, int> kErrors[] = {{"ECONNRESET", ECONNRESET},
                                                        {"ECONNREFUSED", ECONNREFUSED},
                                                        {"EPIPE", EPIPE},
                                                        {"ETIMEDOUT", ETIMEDOUT},
                                                        {"ENOMEM", ENOMEM},
                                                        {"EMFILE", EMFILE},
                                                        {"ENOSPC", ENOSPC},
                                                        {"EINTR", EINTR},
                                                        {"EAGAIN", EAGAIN},
                                                        {"EHOSTUNREACH", EHOSTUNREACH},
                                                        {"EIO", EIO}};

struct Points {
  std::atomic<bool> any = false;  // so that nothing armed costs one load
  Mutex mutex;
  std::string text;
  std::string hits;
  std::array<Armed, kTable.size()> all;
};

Points& points() {
  static Points only;
  return only;
}

std::optional<int> number_in(std::string_view text, int max) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 1 && value <= max ? std::optional(value) : std::nullopt;
}

std::optional<Deed> parse_action(std::string_view text, Kind kind) {
  if (text == "exit") return Deed{Action::kExit};
  if (text == "abort") return Deed{Action::kAbort};
  if (text == "kill") return Deed{Action::kKill};
  if (text == "stop") return Deed{Action::kStop};
  if (text.starts_with("delay:")) {
    const auto value = number_in(text.substr(6), kMaxDelay);
    return value ? std::optional(Deed{Action::kDelay, *value}) : std::nullopt;
  }
  if (kind == Kind::kIo && text == "short") return Deed{Action::kShort};
  if (kind == Kind::kPlace) return std::nullopt;
  if (text == "error") return Deed{Action::kError};
  for (const auto& [name, number] : kErrors) {
    if (text == name) return Deed{Action::kErrno, number};
  }
  return std::nullopt;
}

Status parse_point(std::string_view text, std::array<Armed, kTable.size()>& all) {
  const auto wrong = [&](const std::string& why) {
    return Status::invalid_argument("HOROVOD_FAILPOINTS: '" + std::string(text) + "': " + why);
  };
  const auto equals = text.find('=');
  if (equals == std::string_view::npos) return wrong("expected name=action[@hit[+]]");
  std::size_t index = 0;
  while (index < kTable.size() && kTable[index].name != text.substr(0, equals)) ++index;
  if (index == kTable.size()) return wrong("no failpoint has this name");
  std::string_view action = text.substr(equals + 1);
  Armed armed;
  if (const auto at = action.find('@'); at != std::string_view::npos) {
    std::string_view hit = action.substr(at + 1);
    armed.and_later = hit.ends_with('+');
    if (armed.and_later) hit.remove_suffix(1);
    const auto number = number_in(hit, 1'000'000'000);
    if (!number) return wrong("'" + std::string(hit) + "' is no number of a passage");
    armed.hit = static_cast<std::uint64_t>(*number);
    action = action.substr(0, at);
  }
  const auto deed = parse_action(action, kTable[index].kind);
  if (!deed) return wrong("'" + std::string(action) + "' is no action of this failpoint");
  armed.deed = *deed;
  all[index] = armed;
  return Status::ok();
}

// One write: lines of several processes do not mix.
void note_hit(const std::string& path, std::size_t point) {
  const std::string line = std::string(kTable[point].name) + " " + std::to_string(::getpid()) + "\n";
  const Fd file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  static_cast<void>(write_all(file.get(), line.data(), line.size()));
}

// The deed of this passage; what ends, stops or delays the process is done here.
Deed visit(std::size_t point) {
  Points& known = points();
  if (!known.any.load(std::memory_order_relaxed)) return {};
  Deed deed;
  std::string hits;
  {
    const MutexLock lock(known.mutex);
    hits = known.hits;
    Armed& armed = known.all[point];
    const std::uint64_t passage = ++armed.passages;
    if (passage == armed.hit || (armed.and_later && passage > armed.hit)) deed = armed.deed;
  }
  if (deed.action != Action::kNone && !hits.empty()) note_hit(hits, point);
  switch (deed.action) {
    case Action::kExit: ::_exit(kExitCode);
    case Action::kAbort: std::abort();
    case Action::kKill: ::kill(::getpid(), SIGKILL); break;
    case Action::kStop: ::kill(::getpid(), SIGSTOP); break;
    case Action::kDelay: ::poll(nullptr, 0, deed.value); break;
    default: break;
  }
  return deed;
}

}  // namespace

Status arm(const std::string& text, const std::string& hits) {
  Points& known = points();
  {
    const MutexLock lock(known.mutex);
    if (known.text == text && known.hits == hits) return Status::ok();
  }
  std::array<Armed, kTable.size()> all;
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = std::min(rest.find(';'), rest.size());
    if (end > 0) HVD_RETURN_IF_ERROR(parse_point(rest.substr(0, end), all));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const MutexLock lock(known.mutex);
  known.text = text;
  known.hits = hits;
  known.all = all;
  known.any.store(!text.empty(), std::memory_order_relaxed);
  return Status::ok();
}

void pass(std::size_t point) { visit(point); }

Status fail(std::size_t point) {
  const Deed deed = visit(point);
  const std::string name = "failpoint " + std::string(kTable[point].name);
  if (deed.action == Action::kError) return Status::internal(name);
  if (deed.action == Action::kErrno) return socket_error(name, deed.value);
  return Status::ok();
}

bool fails(std::size_t point) {
  const Deed deed = visit(point);
  if (deed.action != Action::kError && deed.action != Action::kErrno) return false;
  errno = deed.action == Action::kError ? EIO : deed.value;
  return true;
}

bool cuts(std::size_t point, std::size_t& size) {
  const Deed deed = visit(point);
  if (deed.action == Action::kShort && size > 1) size = 1;
  if (deed.action != Action::kError && deed.action != Action::kErrno) return false;
  errno = deed.action == Action::kError ? EIO : deed.value;
  return true;
}

std::uint64_t passages(std::string_view name) {
  Points& known = points();
  const MutexLock lock(known.mutex);
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].name == name) return known.all[i].passages;
  }
  return 0;
}

}  // namespace hvd::failpoint

#else

namespace hvd::failpoint {

Status arm(const std::string& text, const std::string&) {
  if (text.empty()) return Status::ok();
  return Status::invalid_argument("HOROVOD_FAILPOINTS=" + text +
                                  ": this build has no failpoints (CMake's HVD_FAILPOINTS=ON makes one that has)");
}

}  // namespace hvd::failpoint

#endif
