#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hvd {

// The members of a group are called `<group>_<i>of<n>`, i from 1: so ranks that submit unequal numbers of them can be
// told of it.
struct GroupMember {
  std::string_view group;
  std::uint32_t number = 0;  // 1 .. count
  std::uint32_t count = 0;
};

std::string group_member_name(std::string_view group, std::size_t number, std::size_t count);
// Nothing when the name is not like that of a member. The group's lies in `name`.
std::optional<GroupMember> group_member_of(std::string_view name);

}  // namespace hvd
