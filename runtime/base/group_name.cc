#include "runtime/base/group_name.h"

#include <charconv>

namespace hvd {
namespace {

constexpr std::string_view kOf = "of";

// Strictly as std::to_string writes it.
std::optional<std::uint32_t> number_of(std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || text.front() == '0') return std::nullopt;
  return number;
}

}  // namespace

std::string group_member_name(std::string_view group, std::size_t number, std::size_t count) {
  std::string name;
  const std::string ending = std::to_string(number).append(kOf).append(std::to_string(count));
  name.reserve(group.size() + 1 + ending.size());
  return name.append(group).append("_").append(ending);
}

std::optional<GroupMember> group_member_of(std::string_view name) {
  const std::size_t at = name.rfind('_');
  const std::size_t of = name.rfind(kOf);
  if (at == std::string_view::npos || of == std::string_view::npos || of < at) return std::nullopt;
  const auto number = number_of(name.substr(at + 1, of - at - 1));
  const auto count = number_of(name.substr(of + kOf.size()));
  if (!number || !count || *number > *count) return std::nullopt;
  return GroupMember{name.substr(0, at), *number, *count};
}

}  // namespace hvd
