#include "bench/cpp/processes.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

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

int run_processes(int size, const std::function<int(int, Shared&)>& body) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  auto* shared = new (memory) Shared;  // anonymous memory is zero, which is what every field starts as
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
  munmap(memory, sizeof(Shared));
  return result;
}

}  // namespace hvd::bench
