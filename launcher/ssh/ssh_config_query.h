#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/byte_pipe.h"
#include "launcher/process/child.h"

namespace hvd::launcher {

// The `hostname` that `ssh -G` printed: what the user's ssh configuration makes of an alias. Empty when there is none.
// Pure.
std::string hostname_in(std::string_view ssh_g_output);

// Asks the ssh client for the real name behind a host that no name server knows (`Host gpu1 / HostName 10.0.0.7`). It
// connects to nothing. Loop-confined; destroying it ends the question.
class SshConfigQuery {
 public:
  static constexpr std::size_t kMaxOutput = std::size_t{256} * 1024;

  // The name, or "" when ssh does not know better. Called once, from the loop.
  using OnDone = std::function<void(std::string)>;
  static Result<std::unique_ptr<SshConfigQuery>> start(MainLoop& loop, const std::string& ssh_program,
                                                       const std::string& host, OnDone on_done);
  ~SshConfigQuery();

 private:
  explicit SshConfigQuery(OnDone on_done) : on_done_(std::move(on_done)) {}
  void maybe_done();

  OnDone on_done_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<PipeReader> reader_;
  std::string output_;
  bool exited_ = false;
  bool succeeded_ = false;
};

}  // namespace hvd::launcher
