#include "runtime/engine/host_news.h"

#include <string>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/thread.h"

namespace hvd::engine {
namespace {

constexpr std::chrono::hours kPatience{1};  // of one wait; then the next begins
constexpr Millis kUsualBeginning{200};      // a session has begun by then, as a rule

}  // namespace

HostNews::HostNews(rendezvous::Client& client, std::uint64_t epoch)
    : client_(client),
      thread_(start_thread("hvd-host-news", [this, epoch](const std::stop_token&) { listen(epoch); })) {}

HostNews::~HostNews() {
  client_.cancel();
  thread_.join();
}

void HostNews::listen(std::uint64_t epoch) {
  const std::string scope = rendezvous::scope_of_epoch(epoch, rendezvous::kHostNewsScope);
  for (int number = 1;; ++number) {
    auto value = client_.wait(scope, std::to_string(number), Deadline::after(kPatience));
    while (!value.is_ok() && value.status().code() == StatusCode::kTimeout) {
      value = client_.wait(scope, std::to_string(number), Deadline::after(kPatience));
    }
    if (!value.is_ok()) {
      if (value.status().code() != StatusCode::kAborted) {
        HVD_LOG(kInfo, "no more news of hosts", log_field("why", value.status().message()));
      }
      return;
    }
    const auto news = rendezvous::decode_host_news(value.value());
    if (!news.is_ok()) {
      HVD_LOG(kWarning, news.status().message());
      return;
    }
    const MutexLock lock(mutex_);
    updates_.push_back({.time_ms = news.value().time_ms, .change = news.value().change});
  }
}

std::vector<HostUpdate> HostNews::take() {
  const MutexLock lock(mutex_);
  return std::exchange(updates_, {});
}

LossWatch::LossWatch(const rendezvous::ClientOptions& server, std::uint64_t epoch,
                     std::function<void(const Status&)> on_loss)
    : client_(server),
      on_loss_(std::move(on_loss)),
      thread_(start_thread("hvd-loss-watch", [this, epoch](const std::stop_token&) {
        listen(rendezvous::scope_of_epoch(epoch, rendezvous::kLossScope));
      })) {}

LossWatch::~LossWatch() {
  over_.set();
  client_.cancel();
  thread_.join();
}

void LossWatch::listen(const std::string& scope) {
  for (const Deadline usual = Deadline::after(kUsualBeginning); !usual.expired();) {
    if (over_.wait_for(usual.remaining())) return;
  }
  // An error is no news: the session begins without, and how it fails then is its own affair.
  const auto loss = client_.wait(scope, rendezvous::kLossKey, Deadline::after(kPatience));
  if (loss.is_ok()) on_loss_(Status::peer_lost(std::string(as_text(loss.value()))));
}

}  // namespace hvd::engine
