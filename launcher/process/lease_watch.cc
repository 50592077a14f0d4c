#include "launcher/process/lease_watch.h"

#include <utility>

namespace hvd::launcher {
namespace {

constexpr int kMaxMisses = 2;

}  // namespace

LeaseWatch::LeaseWatch(MainLoop& loop, const std::optional<std::string>& own,
                       const std::optional<std::string>& launchers, Callbacks callbacks, Millis interval)
    : callbacks_(std::move(callbacks)), interval_(interval), timer_(loop.get(), [this] { look(); }) {
  if (!own || own == launchers) return;
  const auto link = parse_ssh_link(*own);
  if (!link.is_ok()) return;
  link_ = link.value();
  timer_.start(interval_);
}

void LeaseWatch::look() {
  const auto state = callbacks_.ask(*link_);
  if (state.is_ok()) {
    seen_ = true;
    misses_ = 0;
    if (state.value().waiting_for_ack && state.value().since_last_ack >= kSilence) return callbacks_.on_lost();
  } else if (state.status().code() == StatusCode::kPeerLost && seen_ && ++misses_ == kMaxMisses) {
    // Before it was seen it may be in another network namespace: then there is only the lease.
    return callbacks_.on_lost();
  }
  timer_.start(interval_);
  callbacks_.send_sign();
}

}  // namespace hvd::launcher
