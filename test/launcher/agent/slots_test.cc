// An agent as the launcher sees it: the real program, with its guard, at the other end of two pipes.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "launcher/process/child.h"
#include "launcher/protocol/cookie.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/client/agent_client.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "test/support/temp_folder.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

// What an agent looks for before it starts anything: somebody who listens at the rendezvous address.
class Listener {
 public:
  Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(fd_.get(), 16) == 0);
    REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  std::uint16_t port() const { return port_; }

 private:
  Fd fd_;
  std::uint16_t port_ = 0;
};

std::string name_of(Incarnation process) { return std::to_string(process.slot) + "." + std::to_string(process.number); }

class AgentUnderTest {
 public:
  AgentUnderTest() {
    auto in = make_pipe().value();
    auto out = make_pipe().value();
    const std::string cookie = make_cookie();
    guard_ = ::fork();
    REQUIRE(guard_ >= 0);
    if (guard_ == 0) {
      ::dup2(in.read_end.get(), STDIN_FILENO);
      ::dup2(out.write_end.get(), STDOUT_FILENO);
      ::execl(HVD_HOROVODRUN, "horovodrun", "--agent", cookie.c_str(), nullptr);
      ::_exit(127);
    }
    in_ = std::move(in.write_end);
    out_ = std::move(out.read_end);
    scanner_.emplace(cookie);
  }
  ~AgentUnderTest() {
    in_.reset();  // the lease
    out_.reset();
    if (guard_ > 0) ::waitpid(guard_, nullptr, 0);
  }
  AgentUnderTest(const AgentUnderTest&) = delete;
  AgentUnderTest& operator=(const AgentUnderTest&) = delete;

  // Processes run what their variable ROLE says.
  void launch(std::uint32_t slots) {
    send(FrameType::kLaunch, LaunchMessage{.secret = secret_,
                                           .cwd = "/",
                                           .env = {{"OMP_NUM_THREADS", "1"}},
                                           .command = {"sh", "-c", "eval \"$ROLE\""},
                                           .rendezvous_port = listener_.port(),
                                           .rendezvous_addresses = {"127.0.0.1"},
                                           .slots = slots});
  }
  void start(Incarnation process, const std::string& role) {
    send(FrameType::kStart, StartMessage{.process = process, .env = {{"ROLE", role}}});
  }
  template <typename Message>
  void send(FrameType type, const Message& message) {
    const Bytes frame = encode_frame(type, 7, encode(message));
    unsent_.insert(unsent_.end(), frame.begin(), frame.end());
    if (!holds_back_) send_all();
  }
  // What is sent meanwhile goes together: the agent acts on none of it before it has all.
  void hold_back() { holds_back_ = true; }
  void send_all() {
    REQUIRE(write_all(in_.get(), unsent_.data(), unsent_.size()).is_ok());
    unsent_.clear();
    holds_back_ = false;
  }
  void let_go() { in_.reset(); }

  // Reads until this has happened: "started 1.2", "ended 1.2: was killed by signal 9 (SIGKILL)", "done", "error: ...".
  void wait_for(const std::string& event) {
    INFO("waiting for " << event);
    while (std::ranges::count(events_, event) == 0) read_some();
  }
  // Until the process has printed so many lines.
  std::vector<std::string> wait_for_lines(Incarnation process, std::size_t count) {
    INFO("waiting for " << count << " lines of " << name_of(process));
    while (lines_of(process).size() < count) read_some();
    return lines_of(process);
  }
  // Until the process has printed this whole line that often.
  void wait_for_line(Incarnation process, const std::string& line, int times = 1) {
    INFO("waiting for '" << line << "' of " << name_of(process));
    while (std::ranges::count(lines_of(process), line) < times) read_some();
  }
  std::vector<std::string> lines_of(Incarnation process) const {
    std::vector<std::string> lines;
    const auto found = output_.find(process);
    std::istringstream text(found == output_.end() ? "" : found->second);
    for (std::string line; std::getline(text, line) && !text.eof();) lines.push_back(line);
    return lines;
  }
  bool has_happened(const std::string& event) const { return std::ranges::count(events_, event) > 0; }
  std::size_t bytes_of(Incarnation process) const {
    const auto found = output_.find(process);
    return found == output_.end() ? 0 : found->second.size();
  }
  int agent_pid() const { return agent_; }
  const crypto::Secret& secret() const { return secret_; }

 private:
  void read_some() {
    pollfd ready{.fd = out_.get(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&ready, 1, static_cast<int>(deadline_.remaining().count())) == 1);
    std::array<std::uint8_t, 65536> chunk{};
    const ssize_t size = ::read(out_.get(), chunk.data(), chunk.size());
    REQUIRE(size > 0);
    ByteSpan bytes = ByteSpan(chunk).first(static_cast<std::size_t>(size));
    Bytes rest;
    if (scanner_) {
      auto found = scanner_->feed(bytes);
      if (!found) return;
      scanner_.reset();
      rest = std::move(*found);
      bytes = rest;
    }
    decoder_.feed(bytes);
    for (auto next = decoder_.next(); next.is_ok() && next.value(); next = decoder_.next()) note(*next.value());
  }

  void note(const Frame& frame) {
    switch (frame.type) {
      case FrameType::kHello: agent_ = decode<HelloMessage>(frame.payload).value().pid; break;
      case FrameType::kStarted:
        events_.push_back("started " + name_of(decode<StartedMessage>(frame.payload).value().process));
        break;
      case FrameType::kEnded: {
        const EndedMessage ended = decode<EndedMessage>(frame.payload).value();
        events_.push_back("ended " + name_of(ended.process) + ": " +
                          describe(ExitStatus{.code = ended.code, .signal = ended.signal}));
        break;
      }
      case FrameType::kOutput: {
        const OutputMessage output = decode<OutputMessage>(frame.payload).value();
        if (output.stream == OutputStream::kStdout) output_[output.process] += as_text(output.bytes);
        break;
      }
      case FrameType::kOutputEnd: {
        const OutputEndMessage end = decode<OutputEndMessage>(frame.payload).value();
        if (end.stream == OutputStream::kStdout) events_.push_back("end of output " + name_of(end.process));
        break;
      }
      case FrameType::kError: events_.push_back("error: " + decode<TextMessage>(frame.payload).value().text); break;
      case FrameType::kDone: events_.push_back("done"); break;
      default: FAIL("an unexpected frame of type " << static_cast<int>(frame.type));
    }
  }

  Listener listener_;
  crypto::Secret secret_ = crypto::Secret::random();
  Deadline deadline_ = soon();
  pid_t guard_ = -1;
  int agent_ = -1;
  Fd in_;
  Bytes unsent_;
  bool holds_back_ = false;
  Fd out_;
  std::optional<CookieScanner> scanner_;
  FrameDecoder decoder_;
  std::vector<std::string> events_;
  std::map<Incarnation, std::string> output_;
};

// Zombies count as gone.
bool is_running(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("State:")) return line.find('Z') == std::string::npos && line.find('X') == std::string::npos;
  }
  return false;
}

void wait_until_gone(int pid) {
  INFO("process " << pid << " ends");
  const Deadline deadline = soon();
  while (is_running(pid)) {
    REQUIRE_FALSE(deadline.expired());
    ::poll(nullptr, 0, 5);
  }
}

std::size_t lines_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

const std::string kLoop = "while :; do sleep 0.02; done";

}  // namespace

TEST_CASE("A slot is started again after its process has ended, and each is signalled and stopped alone", "[agent]") {
  AgentUnderTest agent;
  agent.launch(2);
  const Incarnation first{.slot = 1, .number = 1};
  agent.start(first, "echo $HOROVOD_AGENT; exit 3");
  agent.wait_for("ended 1.1: exited with code 3");
  const std::string former_socket = agent.lines_of(first).at(0);

  const Incarnation other{.slot = 2, .number = 1};
  agent.start(other, "trap 'echo usr1' USR1; echo ready; " + kLoop);
  agent.wait_for_line(other, "ready");

  const Incarnation second{.slot = 1, .number = 2};
  agent.start(second,
              "trap 'echo usr1' USR1; trap 'echo term; exit 0' TERM; echo $HOROVOD_AGENT; echo ready; " + kLoop);
  agent.wait_for_line(second, "ready");
  CHECK(agent.lines_of(first).size() == 1);
  const auto credentials = rendezvous::fetch_credentials(agent.lines_of(second).at(0), soon());
  REQUIRE(credentials.is_ok());
  CHECK(credentials.value().seat.process == second);
  CHECK(credentials.value().seat.token == rendezvous::seat_token(agent.secret(), second));
  CHECK_FALSE(rendezvous::fetch_credentials(former_socket, soon()).is_ok());

  agent.send(FrameType::kInput, InputMessage{first, Bytes{'x'}});  // too late: dropped
  agent.send(FrameType::kSignal, SignalMessage{.slot = 2, .signal = SIGUSR1});
  agent.wait_for_line(other, "usr1");
  agent.send(FrameType::kStop, StopMessage{.slot = 1, .grace_ms = 20000});
  agent.wait_for("ended 1.2: exited with code 0");
  CHECK(agent.lines_of(second) == std::vector<std::string>{agent.lines_of(second)[0], "ready", "term"});

  // The other went on, and can be killed alone.
  agent.send(FrameType::kSignal, SignalMessage{.slot = 2, .signal = SIGUSR1});
  agent.wait_for_line(other, "usr1", 2);
  agent.start({.slot = 1, .number = 3}, "echo ready; " + kLoop);
  agent.wait_for_line({.slot = 1, .number = 3}, "ready");
  agent.send(FrameType::kSignal, SignalMessage{.slot = 2, .signal = SIGKILL});
  agent.wait_for("ended 2.1: was killed by signal 9 (SIGKILL)");
  agent.send(FrameType::kSignal, SignalMessage{.signal = SIGTERM});
  agent.wait_for("ended 1.3: was killed by signal 15 (SIGTERM)");
  agent.send(FrameType::kShutdown, ShutdownMessage{.at_once = true});
  agent.wait_for("done");
}

TEST_CASE("A process that does not heed its stop is killed after the grace, with what it has started", "[agent]") {
  AgentUnderTest agent;
  agent.launch(1);
  const Incarnation process{.slot = 0, .number = 1};
  agent.start(process, "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 1000' & " + kLoop);
  const int helper = std::stoi(agent.wait_for_lines(process, 1)[0]);
  agent.send(FrameType::kStop, StopMessage{.slot = 0, .grace_ms = 20});
  agent.wait_for("ended 0.1: was killed by signal 9 (SIGKILL)");
  wait_until_gone(helper);
}

TEST_CASE("What a process has left in its session is killed before the slot's next one starts", "[agent]") {
  AgentUnderTest agent;
  agent.launch(1);
  const Incarnation first{.slot = 0, .number = 1};
  agent.start(first, "sleep 1000 & echo $!; exit 0");
  agent.wait_for("ended 0.1: exited with code 0");
  const int helper = std::stoi(agent.wait_for_lines(first, 1)[0]);
  CHECK(is_running(helper));
  CHECK_FALSE(agent.has_happened("end of output 0.1"));
  const Incarnation second{.slot = 0, .number = 2};
  agent.start(second, "echo here; " + kLoop);
  agent.wait_for_lines(second, 1);
  wait_until_gone(helper);
  agent.wait_for("end of output 0.1");
}

TEST_CASE("While nobody takes the output, no more of it is read, also of a process that starts meanwhile", "[agent]") {
  const test::TempFolder folder;
  const auto role = [&](const std::string& name) {
    return "while :; do head -c 65536 /dev/zero; echo >> " + folder / name + "; done";
  };
  // How often it has printed as much as a pipe holds, once it stands still or goes on without an end.
  const auto prints = [&](const std::string& name, std::size_t least, std::size_t most) {
    const auto printed = [&] { return lines_in(folder / name); };
    const Deadline deadline = soon();
    for (std::size_t before = 0, now = printed();; before = std::exchange(now, printed())) {
      if ((now == before && now >= least) || now > most) return now;
      REQUIRE_FALSE(deadline.expired());
      ::poll(nullptr, 0, 100);
    }
  };
  AgentUnderTest agent;
  agent.launch(3);
  agent.start({0, 1}, role("first"));
  agent.wait_for("started 0.1");
  CHECK(prints("first", 64, 1000) <= 1000);  // 4 MiB
  agent.start({1, 1}, role("second"));
  agent.start({2, 1}, "echo its last words; exit 3");
  CHECK(prints("second", 1, 10) <= 10);
  agent.wait_for_line({2, 1}, "its last words");  // who ends meanwhile loses nothing
  // Nor does it wait until the others leave off: it comes behind what the agent keeps, 4 MiB.
  CHECK(agent.bytes_of({0, 1}) + agent.bytes_of({1, 1}) < std::size_t{6} << 20);
}

TEST_CASE("A second process of a slot outlives neither the lease nor its agent", "[agent]") {
  AgentUnderTest agent;
  agent.launch(1);
  agent.start({.slot = 0, .number = 1}, "exit 0");
  agent.wait_for("ended 0.1: exited with code 0");
  const Incarnation second{.slot = 0, .number = 2};
  agent.start(second, "setsid sleep 1000 & echo $!; echo $$; exec sleep 1000");
  const std::vector<std::string> pids = agent.wait_for_lines(second, 2);
  SECTION("the lease ends") { agent.let_go(); }
  SECTION("the agent is killed") { ::kill(agent.agent_pid(), SIGKILL); }
  for (const std::string& pid : pids) wait_until_gone(std::stoi(pid));
}

TEST_CASE("A signal ends what was about to start", "[agent]") {
  AgentUnderTest agent;
  agent.hold_back();
  agent.launch(2);
  agent.start({.slot = 0, .number = 1}, "echo never");
  agent.start({.slot = 1, .number = 1}, "exit 0");
  agent.send(FrameType::kSignal, SignalMessage{.slot = 0, .signal = SIGTERM});
  agent.send_all();
  agent.wait_for("ended 0.1: was killed by signal 15 (SIGTERM)");
  agent.wait_for("ended 1.1: exited with code 0");
  CHECK(agent.lines_of({.slot = 0, .number = 1}).empty());
  agent.start({.slot = 0, .number = 2}, "echo now");
  agent.wait_for_lines({.slot = 0, .number = 2}, 1);
}

TEST_CASE("An agent refuses a start in a slot that is not free, and of an incarnation that it has had", "[agent]") {
  AgentUnderTest agent;
  agent.launch(1);
  SECTION("not free") {
    agent.start({.slot = 0, .number = 1}, "exec sleep 1000");
    agent.start({.slot = 0, .number = 2}, "exit 0");
    agent.wait_for("error: slot 0, incarnation 2: incarnation 1 has not ended");
  }
  SECTION("not the next") {
    agent.start({.slot = 0, .number = 2}, "exit 0");
    agent.wait_for("ended 0.2: exited with code 0");
    agent.start({.slot = 0, .number = 2}, "exit 0");
    agent.wait_for("error: slot 0, incarnation 2: the slot has had incarnation 2");
  }
}
