#include "launcher/inspect/stall_stacks.h"

#include <utility>

namespace hvd::launcher {
namespace {

// python/src/register_stacks.cc begins native stacks so. They are long, and --stacks shows them.
constexpr const char* kNative = "Native stack of ";

}  // namespace

StallStacks::StallStacks(std::function<void(int rank)> ask, std::function<void(const std::string& text)> show)
    : ask_(std::move(ask)), show_(std::move(show)) {}

void StallStacks::stalled(int rank) {
  asked_.insert(rank);
  ask_(rank);
}

void StallStacks::stacks(int rank, const std::string& who, const std::string& text) {
  if (asked_.erase(rank) == 0) return;
  std::string python = text.substr(0, text.find(kNative));
  while (python.ends_with('\n')) python.pop_back();
  std::string& shown = shown_[rank];
  if (shown == python) return;
  show_("others wait for " + who + ", which stands here: " + python);
  shown = std::move(python);
}

}  // namespace hvd::launcher
