#include "launcher/agent/lease_watch.h"

#include <utility>

namespace hvd::launcher {

LeaseWatch::LeaseWatch(MainLoop& loop, const std::optional<std::string>& own, const std::optional<std::string>& launchers,
                       std::function<void()> send_sign, std::function<void()> on_lost)
    : send_sign_(std::move(send_sign)), on_lost_(std::move(on_lost)), timer_(loop.get(), [this] { look(); }) {
  if (!own || own == launchers) return;
  const auto link = parse_ssh_link(*own);
  if (!link.is_ok()) return;
  link_ = link.value();
  timer_.start(kInterval);
}

void LeaseWatch::look() {
  const auto state = link_state(*link_);
  if (!state.is_ok()) return;  // another network namespace, or no sock_diag: then there is only the lease
  if (state.value().waiting_for_ack && state.value().since_last_ack >= kSilence) return on_lost_();
  timer_.start(kInterval);
  send_sign_();
}

}  // namespace hvd::launcher
