#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "launcher/process/input_reader.h"
#include "launcher/process/main_loop.h"
#include "runtime/base/bytes.h"

namespace hvd::launcher {

// Carries our stdin to the slots that get it, once all of them run. It reads no more than the slowest of them takes,
// give or take kWindow. Owned by the JobDriver, loop-confined.
class InputForwarder {
 public:
  static constexpr std::size_t kWindow = std::size_t{256} * 1024;  // under way to a process

  struct Callbacks {
    std::function<void(int slot, ByteSpan bytes)> send;  // no bytes: the end
    std::function<void()> on_line_typed;                 // a line has come from a terminal, which has shown its end
  };

  // Requires: the processes of `slots` are started with input.
  InputForwarder(MainLoop& loop, const std::vector<int>& slots, Callbacks callbacks);

  void process_started(int slot);
  void process_took(int slot, std::size_t size);
  // It has ended; the others still get theirs.
  void process_ended(int slot);

 private:
  struct Receiver {
    bool started = false;
    std::size_t under_way = 0;
  };

  void begin();
  void read_more();
  void received(ByteSpan bytes);

  MainLoop& loop_;
  Callbacks callbacks_;
  std::map<int, Receiver> receivers_;
  std::optional<InputReader> reader_;
  std::size_t allowed_ = 0;  // of which nothing has come yet
  bool is_terminal_ = false;
};

}  // namespace hvd::launcher
