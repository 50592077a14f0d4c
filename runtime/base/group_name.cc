#include "runtime/base/group_name.h"

namespace hvd {

std::string group_member_name(std::string_view group, std::size_t number, std::size_t count) {
  std::string name;
  const std::string ending = std::to_string(number).append("of").append(std::to_string(count));
  name.reserve(group.size() + 1 + ending.size());
  return name.append(group).append("_").append(ending);
}

}  // namespace hvd
