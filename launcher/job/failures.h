#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/child.h"

namespace hvd::launcher {

// A process of the job by its slot, and the rank that the job has given it, which is what people know it by.
struct Member {
  int slot = -1;
  int rank = -1;
  std::uint32_t incarnation = 0;
};

// A process or a host that went wrong.
struct JobFailure {
  std::optional<Member> who;  // nobody: a host
  std::string host;
  int pid = 0;
  std::string name = {};  // of the process, for scripts: see Job::process_name
  int exit_code = 1;
  std::string what;        // "exited with code 3"
  ExitStatus status = {};  // of a process
};

// A process that ended with exit code 0, and not because of us. That is success, unless others needed it: os._exit(0).
struct GoodEnd {
  Member who;
  std::string host;
  bool is_before_failure = true;  // reported before any; else it may be a consequence
};

// Which failure of a job was the first: it decides the exit code, and it is what the user wants to read about. Exits
// alone do not tell, since a rank whose peer is gone may exit before that peer does. So ranks also say when they go
// down by their own fault, or leave. Owned by StaticJob; pure.
class Failures {
 public:
  // It goes down by its own fault. Others that fail because of it may exit before; none of them is the first then.
  void process_failing(Member who);
  // It has left a job that goes on. If it turns out to exit with an error, that was the first failure, though others
  // that failed because of it may exit before.
  void process_leaving(Member who);
  // See GoodEnd.
  void process_succeeded(Member who, const std::string& host);

  // Requires: there is no first one yet.
  void set_first(JobFailure failure) { first_ = std::move(failure); }
  // An exit with an error after the first failure, and not because of us. One that was killed was the first after
  // all, unless the first said that it goes down by its own fault.
  void add(JobFailure failure);

  // The first that announced its failure, while nothing has failed.
  std::optional<Member> announced() const { return first_ ? std::nullopt : failing_; }
  const std::optional<JobFailure>& first() const { return first_; }
  // Those that failed by themselves after that: "rank 0 exited with code 1".
  const std::vector<std::string>& later() const { return later_; }
  // The first that had left while the job went on, when it was another that failed after that.
  std::optional<Member> left_before() const;
  // One that ended with exit code 0, without a word that it fails, and that the first failure's last lines call lost
  // because its process ended.
  std::optional<GoodEnd> lost_before(const std::vector<std::string>& last_stderr_lines) const;

 private:
  std::optional<Member> failing_;  // the first that announced its failure
  std::optional<Member> leaving_;  // the first that left before any failure
  std::vector<GoodEnd> good_ends_;
  std::optional<JobFailure> first_;
  std::vector<std::string> later_;
};

// What made a rank fail, in a sentence, as far as its end and its last lines on stderr tell: "" when they do not. Pure.
std::string cause_of(const JobFailure& failure, const std::vector<std::string>& last_stderr_lines);

// What another rank has to do with the first failure, as it goes on after "rank 0 exited with code 1": "" when none
// has. Pure.
std::string circumstance_of(const Failures& failures, const std::vector<std::string>& last_stderr_lines);

// What the user reads last when a rank has failed: who was first, where, its last lines on stderr, who followed, and
// the two lines that Horovod's launcher ends with and that scripts look for. Empty when no rank failed. `are_in_sight`:
// these lines were printed a moment ago and need no repetition. Pure.
std::string error_summary(const Failures& failures, const std::vector<std::string>& last_stderr_lines,
                          bool are_in_sight = false);

}  // namespace hvd::launcher
