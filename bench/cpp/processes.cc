#include "bench/cpp/processes.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/base/fd.h"

namespace hvd::bench {

void Shared::barrier(int size) {
  const std::int64_t ticket = arrived_.fetch_add(1);
  const std::int64_t round_end = (ticket / size + 1) * size;
  const TimePoint patience = SteadyClock::now() + Millis(2);
  while (arrived_.load(std::memory_order_acquire) < round_end) {
    if (SteadyClock::now() < patience) {
      sched_yield();
    } else {
      usleep(50);
    }
  }
}

Status Shared::put(const std::string& key, const Bytes& value) {
  const int at = entries_used_.fetch_add(1);
  if (at >= kMaxEntries || key.size() >= sizeof(Entry::key) || value.size() > kMaxValue) {
    return Status::internal("the benchmark's store is too small for " + key);
  }
  Entry& entry = entries_[at];
  std::memcpy(entry.key, key.c_str(), key.size() + 1);
  std::memcpy(entry.value, value.data(), value.size());
  entry.size = value.size();
  entry.ready.store(true, std::memory_order_release);
  return Status::ok();
}

Result<Bytes> Shared::wait(const std::string& key, Deadline deadline) {
  while (!deadline.expired()) {
    for (int i = 0; i < entries_used_.load() && i < kMaxEntries; ++i) {
      const Entry& entry = entries_[i];
      if (!entry.ready.load(std::memory_order_acquire) || key != entry.key) continue;
      return Bytes(entry.value, entry.value + entry.size);
    }
    sched_yield();
  }
  return Status::timeout("nobody put " + key);
}

StockTcpStore Shared::store() {
  return {[this](const std::string& key, const Bytes& value) { return put(key, value); },
          [this](const std::string& key, Deadline deadline) { return wait(key, deadline); }};
}

namespace {

Shared* map_shared(int fd) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory != MAP_FAILED) return static_cast<Shared*>(memory);
  std::perror("mmap");
  return nullptr;
}

}  // namespace

int run_rank(const std::string& file, const RankBody& body) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = std::getenv("PMI_RANK");  // of MPICH
  if (rank == nullptr) {
    std::fprintf(stderr, "--meet is for processes that mpirun starts: no OMPI_COMM_WORLD_RANK and no PMI_RANK\n");
    return 2;
  }
  const Fd fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0 || ftruncate(fd.get(), sizeof(Shared)) != 0) {
    std::perror(file.c_str());
    return 1;
  }
  Shared* const shared = map_shared(fd.get());
  return shared == nullptr ? 1 : body(std::atoi(rank), *shared);
}

int run_processes(int size, const RankBody& body) {
  Shared* const shared = map_shared(-1);
  if (shared == nullptr) return 1;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int code = body(rank, *shared);
      std::fflush(nullptr);
      _exit(code);
    }
    children.push_back(pid);
  }
  int result = 0;
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t pid = wait(&status);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code == 0 || result != 0) continue;
    result = code;
    for (const pid_t other : children) {
      if (other != pid) kill(other, SIGKILL);  // the others would wait for it for ever
    }
  }
  munmap(shared, sizeof(Shared));
  return result;
}

}  // namespace hvd::bench
