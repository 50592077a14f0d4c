#include <algorithm>
#include <charconv>

#include "launcher/binding/binding.h"

namespace hvd::launcher {
namespace {

constexpr int kMaxCpu = 1 << 16;

std::optional<int> cpu_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole && number >= 0 && number < kMaxCpu ? std::optional<int>(number) : std::nullopt;
}

}  // namespace

std::string cpu_list_text(const Cpus& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) text += "-" + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

Result<Cpus> parse_cpu_list(std::string_view text) {
  const std::string whole(text);
  Cpus cpus;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t dash = std::min(part.find('-'), part.size());
    const auto first = cpu_number(part.substr(0, dash));
    const auto last = dash == part.size() ? first : cpu_number(part.substr(dash + 1));
    if (!first || !last || *last < *first || (!cpus.empty() && *first <= cpus.back())) {
      return Status::invalid_argument("'" + whole + "' is not an ascending list of processors such as 0-3,8");
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

}  // namespace hvd::launcher
