#include "launcher/agent/sweeper.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

namespace hvd::launcher {
namespace {

// The parent as /proc/<pid>/stat has it: the second field after the last ')', since a name may hold anything.
int parent_of(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return -1;
  char state = 0;
  int parent = -1;
  return std::sscanf(text.c_str() + after_name + 1, " %c %d", &state, &parent) == 2 ? parent : -1;
}

// For kernels without CONFIG_PROC_CHILDREN.
std::vector<int> children_by_scan(int pid) {
  std::vector<int> children;
  for (int candidate : numbers_in("/proc")) {
    if (parent_of(candidate) == pid) children.push_back(candidate);
  }
  return children;
}

}  // namespace

std::vector<int> numbers_in(const std::string& path) {
  std::vector<int> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path.c_str()), &::closedir);
  if (!dir) return numbers;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    int number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  return numbers;
}

std::vector<int> children_of(int pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  std::vector<int> children;
  for (int thread : numbers_in(tasks)) {
    std::ifstream file(tasks + "/" + std::to_string(thread) + "/children");
    if (!file.is_open()) {
      if (::access(tasks.c_str(), F_OK) == 0 && ::access("/proc/self/task", F_OK) == 0 &&
          ::access(("/proc/self/task/" + std::to_string(::getpid()) + "/children").c_str(), F_OK) != 0) {
        return children_by_scan(pid);
      }
      continue;  // the thread has ended
    }
    int child = 0;
    while (file >> child) children.push_back(child);
  }
  return children;
}

std::vector<int> descendants_of(int pid, const std::set<int>& spared) {
  std::vector<int> found = children_of(pid);
  std::erase_if(found, [&spared](int child) { return spared.contains(child); });
  std::set<int> seen = spared;
  seen.insert(found.begin(), found.end());
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (int child : children_of(found[i])) {
      if (seen.insert(child).second) found.push_back(child);
    }
  }
  return found;
}

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

void reap_adopted(const std::set<int>& known) {
  for (int child : children_of(::getpid())) {
    if (!known.contains(child)) ::waitpid(child, nullptr, WNOHANG);
  }
}

}  // namespace hvd::launcher
