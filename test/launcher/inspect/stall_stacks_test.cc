#include "launcher/inspect/stall_stacks.h"

#include <catch2/catch.hpp>
#include <vector>

using hvd::launcher::StallStacks;

TEST_CASE("StallStacks shows Python's stack of a rank that others wait for, and again when it has changed", "[job]") {
  std::vector<int> asked;
  std::vector<std::string> shown;
  StallStacks stacks([&](int rank) { asked.push_back(rank); }, [&](const std::string& text) { shown.push_back(text); });
  const std::string sleeps = "pid 7 (python), state S\nThread 1:\n  File \"a.py\", line 3 in load\n";
  stacks.stacks(1, "rank 1 on host b", sleeps);  // that somebody else has asked for
  CHECK(shown.empty());

  stacks.stalled(1);
  CHECK(asked == std::vector{1});
  stacks.stacks(0, "rank 0 on host b", "of the same agent");
  stacks.stacks(1, "rank 1 on host b", sleeps + "Native stack of the thread that has the signal: 0x1\n");
  CHECK(shown == std::vector<std::string>{"others wait for rank 1 on host b, which stands here: pid 7 (python), state S"
                                          "\nThread 1:\n  File \"a.py\", line 3 in load"});

  stacks.stalled(1);
  stacks.stacks(1, "rank 1 on host b", sleeps);
  CHECK(shown.size() == 1);
  stacks.stalled(1);
  stacks.stacks(1, "rank 1 on host b", "pid 7 (python), state S\nThread 1:\n  File \"a.py\", line 9 in step\n");
  CHECK(shown.size() == 2);
  CHECK(asked.size() == 3);
}
