#include "starters/key_value_space.h"

#include "runtime/base/wipe.h"

namespace hvd::starters {

Status KeyValueSpace::meet(const Wait& wait) {
  Status passed = pass_fence(wait);
  if (passed.code() != StatusCode::kTimeout) return passed;
  return Status::timeout(name() + ": not every process of the job has come to hvd.init() in time" + elsewhere());
}

Status KeyValueSpace::announce(const std::string& text, const Deadline& deadline, int wake_fd) {
  const Wait wait{deadline, wake_fd};
  HVD_RETURN_IF_ERROR(open(wait));
  HVD_RETURN_IF_ERROR(put(text, wait));
  return meet(wait);
}

Result<std::string> KeyValueSpace::find(const Deadline& deadline, int wake_fd) {
  if (!found_.empty()) return found_;
  const Wait wait{deadline, wake_fd};
  HVD_RETURN_IF_ERROR(open(wait));
  HVD_RETURN_IF_ERROR(meet(wait));
  HVD_ASSIGN_OR_RETURN(found_, get(wait));
  return found_;
}

void KeyValueSpace::forget() { wipe(found_); }

}  // namespace hvd::starters
