#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/process/main_loop.h"
#include "launcher/protocol/messages.h"
#include "runtime/base/deadline.h"
#include "runtime/base/fd.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

// Where the Python programs of some processes stand at this moment, without an end to any of them. A program that has
// loaded our core answers a signal that nobody else uses by writing the stacks of its threads into a memory file
// (python/horovod/_common/stacks.py); one that has no such file, or does not catch the signal, does not get it, for it
// would die of it. Owned by the Agent, loop-confined.
class StackDump {
 public:
  static constexpr Millis kLook{10};
  static constexpr Millis kPatience{3000};  // for a program that is stopped, or that the kernel does not let go on

  struct Target {
    Incarnation process;
    int pid;  // it, or the first of its descendants that can answer, is asked
  };
  using OnText = std::function<void(Incarnation, std::string)>;

  // `on_text` once for each target, then `on_done`; neither from inside the constructor. The owner may destroy it after
  // on_done has returned.
  StackDump(MainLoop& loop, const std::vector<Target>& targets, OnText on_text, std::function<void()> on_done);
  bool done() const { return asked_.empty(); }

 private:
  struct Asked {
    Incarnation process;
    std::string who;   // "pid 7 (python3), state S"
    Fd file;           // not valid: there is nobody to ask
    std::string text;  // without an answer: why
  };

  Asked ask(const Target& target) const;
  void look();

  OnText on_text_;
  std::function<void()> on_done_;
  TimePoint end_;
  std::vector<Asked> asked_;  // and not answered
  loop::Timer timer_;
};

}  // namespace hvd::launcher
