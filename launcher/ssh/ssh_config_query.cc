#include "launcher/ssh/ssh_config_query.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {

std::string hostname_in(std::string_view output) {
  constexpr std::string_view kKey = "hostname ";
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    const std::string_view line = output.substr(0, end);
    if (line.starts_with(kKey)) return std::string(line.substr(kKey.size()));
    output.remove_prefix(std::min(end + 1, output.size()));
  }
  return "";
}

Result<std::unique_ptr<SshConfigQuery>> SshConfigQuery::start(MainLoop& loop, const std::string& ssh_program,
                                                              const std::string& host, OnDone on_done) {
  HVD_FAILPOINT_RETURN("ssh.query");
  HVD_ASSIGN_OR_RETURN(Pipe pipe, make_pipe());
  ChildOptions options;
  options.file = ssh_program;
  options.argv = {ssh_program, "-G", "--", host};
  options.stdout_fd = pipe.write_end.get();
  std::unique_ptr<SshConfigQuery> query(new SshConfigQuery(std::move(on_done)));
  SshConfigQuery* self = query.get();
  HVD_ASSIGN_OR_RETURN(query->child_, Child::spawn(loop, options, [self](ExitStatus status) {
                         self->exited_ = true;
                         self->succeeded_ = status.ok();
                         self->maybe_done();
                       }));
  HVD_ASSIGN_OR_RETURN(query->reader_, PipeReader::open(loop, std::move(pipe.read_end),
                                                        {.on_data =
                                                             [self](ByteSpan bytes) {
                                                               if (self->output_.size() < kMaxOutput) {
                                                                 self->output_ += as_text(bytes);
                                                               }
                                                             },
                                                         .on_end = [self] { self->maybe_done(); }}));
  return query;
}

SshConfigQuery::~SshConfigQuery() {
  if (child_) child_->kill_group(SIGKILL);
}

void SshConfigQuery::maybe_done() {
  if (!exited_ || !reader_ || !reader_->ended() || !on_done_) return;
  const OnDone callback = std::exchange(on_done_, nullptr);
  callback(succeeded_ ? hostname_in(output_) : "");
}

}  // namespace hvd::launcher
