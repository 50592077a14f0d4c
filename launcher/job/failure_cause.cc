// What the end of a rank and its last words mean, for who has never seen them.
#include <signal.h>

#include <string_view>

#include "launcher/job/failures.h"

namespace hvd::launcher {
namespace {

// What the text between `begin` and `end` in a line is; "" when the line has no such thing.
std::string_view between(std::string_view line, std::string_view begin, std::string_view end) {
  const std::size_t at = line.find(begin);
  if (at == std::string_view::npos) return "";
  line.remove_prefix(at + begin.size());
  return line.substr(0, line.find(end));
}

// Words that programs end with. `cause` may have the host's name as %h.
struct KnownWords {
  std::string_view words;
  std::string_view cause;
};

// From the surer to the vaguer: the words of one may follow those of another in the same line.
constexpr auto kKnownWords = std::to_array<KnownWords>({
    {"CUDA out of memory", "a GPU of host %h has run out of memory"},
    {"CUDA error: out of memory", "a GPU of host %h has run out of memory"},
    {"CUDA_ERROR_OUT_OF_MEMORY", "a GPU of host %h has run out of memory"},
    {"CUBLAS_STATUS_ALLOC_FAILED", "a GPU of host %h has run out of memory"},
    {"insufficient shared memory (shm)", "the shared memory of host %h (/dev/shm) is full"},
    {"No space left on device", "a file system of host %h is full (/dev/shm and /tmp are such, too: see `df` there)"},
    {"std::bad_alloc", "the program got no more memory on host %h"},
    {"Cannot allocate memory", "the program got no more memory on host %h"},
    {"MemoryError", "the program got no more memory on host %h"},
    {"CUDA driver version is insufficient", "the NVIDIA driver of host %h is older than the CUDA of the framework"},
    {"no kernel image is available", "the framework was not built for the GPU of host %h"},
});

constexpr std::string_view kGpuAdvice =
    ": a smaller batch may fit; `nvidia-smi` there tells what else uses it, and whether each rank has a GPU of its own";

std::string with_host(std::string_view text, const std::string& host) {
  const std::size_t at = text.find("%h");
  if (at == std::string_view::npos) return std::string(text);
  return std::string(text.substr(0, at)) + host + std::string(text.substr(at + 2));
}

std::string failed_import(std::string_view line, const std::string& host) {
  if (line.find("ModuleNotFoundError: ") != std::string_view::npos) {
    const std::string name(between(line, "No module named '", "'"));
    return "the Python that ran there finds no module " + (name.empty() ? "of that name" : "'" + name + "'") +
           ": it is not installed on host " + host + " for that Python, or PYTHONPATH does not lead to it";
  }
  const std::string_view error = between(line, "ImportError: ", "\n");
  if (error.empty()) return "";
  const std::size_t missing = error.find(": cannot open shared object file");
  if (missing != std::string_view::npos) {
    return "a Python module needs the library " + std::string(error.substr(0, missing)) +
           ", which the loader does not find on host " + host + " (LD_LIBRARY_PATH?)";
  }
  return "a Python module could not be imported: it, or what it needs, is of another version on host " + host;
}

// In the words of runtime/negotiation/stall_inspector.cc.
std::string stall(std::string_view line) {
  const std::string_view span = between(line, "Stalled for more than ", ": ");
  if (span.empty()) return "";
  const std::string_view who = between(line, std::string(span) + ": ", "; shutting down");
  if (who.empty() || line.find("; shutting down") == line.npos) return "";
  return std::string(who) + ", for which others had waited for more than " + std::string(span) +
         "; while it does, `horovodrun --stacks` says where that rank stands";
}

std::string cause_in(std::string_view line, const std::string& host) {
  if (std::string cause = stall(line); !cause.empty()) return cause;
  if (std::string cause = failed_import(line, host); !cause.empty()) return cause;
  for (const KnownWords& known : kKnownWords) {
    if (line.find(known.words) == std::string_view::npos) continue;
    const bool is_gpu_memory = known.cause.starts_with("a GPU");
    return with_host(known.cause, host) + (is_gpu_memory ? std::string(kGpuAdvice) : "");
  }
  return "";
}

std::string cause_of_memory_kills(const JobFailure& failure) {
  const std::uint32_t count = failure.status.memory_kills;
  const std::string killed =
      "since the job began, the kernel has killed " + std::to_string(count) + (count == 1 ? " process" : " processes");
  if (failure.status.of_group) {
    return "memory ran out on host " + failure.host + ": " + killed +
           " of its ranks' control group for want of it (the limit of the container or batch job, or the whole host's)";
  }
  return "perhaps memory ran out: " + killed + " of host " + failure.host + " for want of it";
}

std::string cause_of_signal(int signal) {
  switch (signal) {
    // Nobody has been signalled by us before the first failure.
    case SIGKILL:
      return "somebody killed it, or the kernel, which does so when memory runs out: see `dmesg` there, and the memory "
             "limit of the container or batch job";
    case SIGSEGV:
      return "native code used an address where nothing is: a fault of the program or of a library that it loads; "
             "Python's stacks stand in its last lines, where it could print them";
    case SIGBUS:
      return "the memory behind an address went away: a file that is mapped was cut, or /dev/shm or a disk is full";
    case SIGFPE: return "native code has divided an integer by zero";
    case SIGILL: return "the processor does not know an instruction: a library was built for a newer one";
    case SIGABRT: return "native code gave up: an assertion, or a C++ exception that nobody caught; it says so above";
    default: return "";
  }
}

}  // namespace

std::string cause_of(const JobFailure& failure, const std::vector<std::string>& last_stderr_lines) {
  const ExitStatus& status = failure.status;
  const bool killed = status.signal == SIGKILL;
  if (status.memory_kills > 0 && killed) return cause_of_memory_kills(failure);
  for (auto line = last_stderr_lines.rbegin(); line != last_stderr_lines.rend(); ++line) {
    if (std::string cause = cause_in(*line, failure.host); !cause.empty()) return cause;
  }
  if (status.memory_kills > 0) return cause_of_memory_kills(failure);
  return cause_of_signal(status.signal);
}

}  // namespace hvd::launcher
