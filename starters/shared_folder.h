#pragma once

#include <string>

#include "runtime/base/fd.h"
#include "starters/channel.h"

namespace hvd::starters {

// A file in a folder that all hosts share and that nobody but the user can read (both checked at each use): the
// announcement, under a name made of the job's. It appears complete or not at all.
//
// A file that an earlier job of the same name left behind is never believed: rank 0 replaces one whose server does not
// answer, and refuses to begin beside one whose server does; the other ranks believe none that does not answer.
class SharedFolder final : public Channel {
 public:
  // `why`: what is to be said beside the folder's name, in brackets; or "".
  SharedFolder(std::string path, const std::string& job, Answers answers, std::string why = "");
  ~SharedFolder() override { forget(); }

  std::string name() const override { return "the folder " + path_ + why_; }
  Status announce(const std::string& text, const Deadline& deadline, int wake_fd) override;
  Result<std::string> find(const Deadline& deadline, int wake_fd) override;
  void forget() override;

 private:
  // Made if it is not there. Opened anew for each look: that is when NFS asks its server what is in it.
  Result<Fd> open_folder() const;
  Status link_or_replace(const Fd& folder, const std::string& temporary);

  const std::string path_;
  const std::string file_;
  const Answers answers_;
  const std::string why_;
  std::string announced_;  // by this process; "" when forgotten
};

}  // namespace hvd::starters
