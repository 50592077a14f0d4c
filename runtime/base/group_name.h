#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hvd {

// What member `number` of a group of `count` is called, from 1: `<group>_<number>of<count>`, in all frameworks.
std::string group_member_name(std::string_view group, std::size_t number, std::size_t count);

}  // namespace hvd
