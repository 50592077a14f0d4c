#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/join/sealed_link.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/child.h"
#include "launcher/process/main_loop.h"
#include "launcher/process/tail_buffer.h"
#include "launcher/protocol/cookie.h"
#include "launcher/protocol/frame.h"
#include "launcher/ssh/ssh_login.h"
#include "runtime/loop/timer.h"

namespace hvd::launcher {

class AgentLinkEvents {
 public:
  virtual ~AgentLinkEvents() = default;
  virtual void agent_frame(int agent, const Frame& frame) = 0;
  // Once: no more frames will come. The reason is one line that names the host.
  virtual void agent_lost(int agent, const std::string& reason, bool retry_may_help) = 0;
};

struct AgentLinkOptions {
  int agent = 0;
  std::string host;
  bool is_remote = false;                            // what we start is not the agent, but leads to it
  bool over_ssh = false;                             // and is an ssh client
  std::string agent_path;                            // for messages
  std::string file;                                  // what to execute
  std::vector<std::string> argv;                     // the local agent's, or ssh's
  std::optional<std::vector<std::string>> env = {};  // "NAME=value"; absent: our own
  std::string cookie;
  bool has_called_in = false;               // nothing is executed
  std::unique_ptr<SealedLink> joined = {};  // and this is its connection; nothing when that has ended already
};

// The launcher's side of one agent: the process (the agent itself or an ssh client), frames in both directions, and its
// stderr, of which the end is kept for messages; or the connection of a host that has joined, whose stderr stays there.
// Owned by the JobDriver for the whole job; loop-confined. It knows frames, not what they mean.
class AgentLink {
 public:
  AgentLink(MainLoop& loop, AgentLinkOptions options, AgentLinkEvents& events);

  Status start();
  // `to`: an agent that this one has started.
  void send(FrameType type, const Bytes& payload, bool wipe = false, std::optional<int> to = {});
  // Bytes that the agent has not taken yet, as far as we know.
  std::size_t queued() const { return input_ ? input_->queued() : 0; }
  const std::string& host() const { return options_.host; }
  // Of the process at our end; 0 when there is none, or it has ended.
  int pid() const { return child_ && child_->running() ? child_->pid() : 0; }
  // While paused, what the agent sends stays in the pipe, but for one more piece.
  void pause(bool paused);
  // Nothing more is wanted: closes the lease, which ends what the agent has started. No agent_lost follows.
  void close_lease();
  // Ends the process at our end as well.
  void drop();
  // " (ssh said: ...)", or "" when nothing was said.
  std::string quoted_stderr() const;

 private:
  Status begin_joined();
  void received(ByteSpan bytes);
  void deliver();
  void maybe_lost(bool at_last);
  void lose(const std::string& reason, bool retry_may_help = false);
  bool start_failed() const { return !greeted_ && options_.is_remote && status_ != nullptr; }
  SshFailure ssh_failure() const;
  std::string explain_loss() const;

  MainLoop& loop_;
  AgentLinkOptions options_;
  AgentLinkEvents& events_;
  CookieScanner cookie_;
  FrameDecoder decoder_;
  TailBuffer stderr_tail_;
  std::unique_ptr<Child> child_;
  std::unique_ptr<PipeWriter> input_;
  std::unique_ptr<PipeReader> output_;
  std::unique_ptr<PipeReader> errors_;
  std::unique_ptr<ExitStatus> status_;
  loop::Timer last_call_;  // between the end of the process and the end of its output, whichever is first
  bool greeted_ = false;
  bool paused_ = false;
  bool lost_ = false;
};

}  // namespace hvd::launcher
