#include "launcher/agent/stack_dump.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "launcher/agent/sweeper.h"

namespace hvd::launcher {
namespace {

// Both are known to python/horovod/_common/stacks.py too.
constexpr const char* kFileName = "/memfd:hvd-stacks (deleted)";
constexpr char kEnd = '\f';  // which no line of a stack has

int stack_signal() { return SIGRTMAX - 3; }

// Of a line "Name:\tpython3" in /proc/<pid>/status; "" when the process is gone.
std::string status_field(int pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":\t")) return line.substr(name.size() + 2);
  }
  return "";
}

bool catches_signal(int pid) {
  const std::uint64_t caught = std::strtoull(status_field(pid, "SigCgt").c_str(), nullptr, 16);
  return (caught >> (stack_signal() - 1) & 1) != 0;
}

// The memory file of the process; not valid when it has none.
Fd open_stack_file(int pid) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const int number : numbers_in(folder)) {
    const std::string path = folder + "/" + std::to_string(number);
    std::error_code error;
    if (std::filesystem::read_symlink(path, error) != kFileName) continue;
    return Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  return {};
}

std::string content_of_stack_file(const Fd& file) {
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return "";
  std::string text(std::min(static_cast<std::size_t>(info.st_size), kMaxText), '\0');
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return text;
}

std::string describe_process(int pid) {
  return "pid " + std::to_string(pid) + " (" + status_field(pid, "Name") + "), state " + status_field(pid, "State");
}

}  // namespace

StackDump::StackDump(MainLoop& loop, const std::vector<Target>& targets, OnText on_text, std::function<void()> on_done)
    : on_text_(std::move(on_text)),
      on_done_(std::move(on_done)),
      end_(SteadyClock::now() + kPatience),
      timer_(loop.get(), [this] { look(); }) {
  for (const Target& target : targets) asked_.push_back(ask(target));
  timer_.start(Millis(0));
}

StackDump::Asked StackDump::ask(const Target& target) const {
  std::vector<int> family = descendants_of(target.pid);  // the nearest first
  family.insert(family.begin(), target.pid);
  for (const int pid : family) {
    Fd file = open_stack_file(pid);
    if (!file.valid() || !catches_signal(pid)) continue;
    Asked asked{.process = target.process, .who = describe_process(pid), .file = std::move(file), .text = ""};
    if (::ftruncate(asked.file.get(), 0) != 0 || ::kill(pid, stack_signal()) != 0) continue;
    return asked;
  }
  return {.process = target.process,
          .who = describe_process(target.pid),
          .file = {},
          .text = "no stacks: no Python program that has imported horovod runs there\n"};
}

void StackDump::look() {
  const bool late = SteadyClock::now() >= end_;
  std::vector<Asked> rest;
  for (Asked& asked : std::exchange(asked_, {})) {
    if (asked.file.valid()) {
      asked.text = content_of_stack_file(asked.file);
      // More than one answer is there when it was stopped at an earlier question.
      const std::size_t end = asked.text.find(kEnd);
      if (!late && asked.text.size() < kMaxText / 2 && end == std::string::npos) {
        rest.push_back(std::move(asked));
        continue;
      }
      asked.text.resize(std::min(end, asked.text.size()));
      if (asked.text.empty()) asked.text = "no stacks: it does not answer; it is stopped, or waits in the kernel\n";
    }
    on_text_(asked.process, asked.who + "\n" + asked.text);
  }
  asked_ = std::move(rest);
  if (asked_.empty()) return on_done_();
  timer_.start(kLook);
}

}  // namespace hvd::launcher
