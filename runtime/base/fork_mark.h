#pragma once

namespace hvd {

// Remembers the process it was made in. A forked child has none of the threads that would finish its parent's
// operations, and finding that out must cost no system call: it is asked for every tensor.
class ForkMark {
 public:
  ForkMark() : forks_(forks()) {}
  // False in a child that was forked since.
  bool same_process() const { return forks_ == forks(); }

 private:
  static unsigned forks();  // how often this process's line has forked

  unsigned forks_;
};

}  // namespace hvd
