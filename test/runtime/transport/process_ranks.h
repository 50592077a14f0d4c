#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "runtime/base/fd.h"
#include "test/runtime/transport/fabric_group.h"

namespace hvd::test {

// Rank 0 is the calling process, every other rank a forked one that runs `body` and exits. The processes exchange their
// rows through socket pairs. Requires: no other thread of ours is running when this is made.
class ProcessRanks {
 public:
  using Body = std::function<void(transport::Fabric& fabric)>;

  ProcessRanks(int size, const Body& body, int sockets = 2) : sockets_(sockets) {
    for (int rank = 1; rank < size; ++rank) spawn(rank, size, body);
    fabric = make_fabric(0, size);
    rows.set(0, fabric->address_row());
    for (int rank = 1; rank < size; ++rank)
      rows.set(rank, receive(children_[static_cast<std::size_t>(rank) - 1].link.get()));
    for (int rank = 1; rank < size; ++rank) {
      for (int other = 0; other < size; ++other) {
        send_row(children_[static_cast<std::size_t>(rank) - 1].link.get(),
                 rows.rows(std::span(&other, 1), Deadline::after(Millis(0))).value()[0]);
      }
    }
    REQUIRE(fabric->open(1, test_secret(), rows).is_ok());
  }
  ~ProcessRanks() {
    fabric.reset();
    for (auto& child : children_) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
  }
  ProcessRanks(const ProcessRanks&) = delete;
  ProcessRanks& operator=(const ProcessRanks&) = delete;

  pid_t pid(int rank) const { return children_[static_cast<std::size_t>(rank) - 1].pid; }

  MapRowSource rows;
  std::unique_ptr<transport::Fabric> fabric;

 private:
  struct Child {
    pid_t pid;
    Fd link;
  };

  std::unique_ptr<transport::Fabric> make_fabric(int rank, int size) const {
    transport::FabricOptions options;
    options.rank = rank;
    options.size = size;
    options.sockets = sockets_;
    return transport::Fabric::create(options).value();
  }
  static void send_row(int fd, const Bytes& row) {
    const auto size = static_cast<std::uint32_t>(row.size());
    HVD_CHECK(write_all(fd, &size, sizeof(size)).is_ok() && write_all(fd, row.data(), row.size()).is_ok(), "row");
  }
  static Bytes receive(int fd) {
    std::uint32_t size = 0;
    HVD_CHECK(read_exactly(fd, &size, sizeof(size)).is_ok(), "row size");
    Bytes row(size);
    HVD_CHECK(read_exactly(fd, row.data(), row.size()).is_ok(), "row");
    return row;
  }
  void spawn(int rank, int size, const Body& body) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(3);
      close(ends[0]);
      run_child(rank, size, Fd(ends[1]), body);
    }
    close(ends[1]);
    children_.push_back({pid, Fd(ends[0])});
  }
  [[noreturn]] void run_child(int rank, int size, Fd link, const Body& body) const {
    int code = 0;
    try {
      auto own = make_fabric(rank, size);
      send_row(link.get(), own->address_row());
      MapRowSource all;
      for (int other = 0; other < size; ++other) all.set(other, receive(link.get()));
      HVD_CHECK(own->open(1, test_secret(), all).is_ok(), "open");
      body(*own);
    } catch (const std::exception& e) {
      code = 1;
    }
    _exit(code);
  }

  std::vector<Child> children_;
  const int sockets_;
};

}  // namespace hvd::test
