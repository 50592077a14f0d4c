#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>

#include "launcher/process/input_reader.h"
#include "launcher/process/main_loop.h"
#include "runtime/base/bytes.h"
#include "runtime/base/wipe.h"

namespace hvd::launcher {

// Carries our stdin to the slots that get it, once all of them run. It reads no more than the slowest of them takes,
// give or take kWindow. Or it keeps what it has read, for processes that start later: each gets all of it, from the
// beginning. Owned by the JobDriver, loop-confined.
class InputForwarder {
 public:
  static constexpr std::size_t kWindow = std::size_t{256} * 1024;           // under way to a process
  static constexpr std::size_t kMostKept = (std::size_t{1} << 30) + 65536;  // horovod.run()'s largest task fits

  struct Callbacks {
    std::function<void(int slot, ByteSpan bytes)> send;  // no bytes: the end
    std::function<void()> on_line_typed;                 // a line has come from a terminal, which has shown its end
    std::function<void()> on_too_much;                   // to be kept; nothing more is read
  };

  InputForwarder(MainLoop& loop, bool keeps, Callbacks callbacks);

  // A process that has input is being started in the slot.
  void add(int slot);
  void process_started(int slot);
  void process_took(int slot, std::size_t size);
  // It has ended; the others still get theirs.
  void process_ended(int slot);

 private:
  struct Receiver {
    bool started = false;
    bool has_end = false;
    std::size_t sent = 0;  // of what is kept
    std::size_t under_way = 0;
  };

  void begin();
  void read_more();
  void received(ByteSpan bytes);
  void keep(ByteSpan bytes);
  void feed(int slot, Receiver& receiver);
  void end_reached();

  MainLoop& loop_;
  const bool keeps_;
  Callbacks callbacks_;
  std::map<int, Receiver> receivers_;
  WipedBytes kept_;
  bool is_at_end_ = false;
  std::optional<InputReader> reader_;
  std::size_t allowed_ = 0;  // of which nothing has come yet
  bool is_terminal_ = false;
};

}  // namespace hvd::launcher
