#include "runtime/transport/control_links_impl.h"

#include "runtime/base/check.h"

namespace hvd::transport {

void ControlLinkSet::add(int rank, ForkFd stream, std::string host) {
  ControlLink::Events events;
  events.message = [this, rank](ByteSpan message) { handler_.on_control_message(rank, message); };
  events.lost = [this, rank, name = std::move(host)](const Status& why) {
    handler_.on_control_lost(rank, why.annotate("host " + name));
  };
  events.drained = [this] { finish_close(); };
  links_.emplace(rank, std::make_unique<ControlLink>(loop_, std::move(stream), std::move(events)));
}

void ControlLinkSet::start() {
  if (released_) return;
  for (auto& [rank, link] : links_) link->start();
}

void ControlLinkSet::send(int to_rank, Bytes message) {
  HVD_CHECK(message.size() <= ControlLinks::kMaxControlMessage, "a control message is too large");
  const auto link = links_.find(to_rank);
  HVD_CHECK(link != links_.end(), "no control connection to that rank");
  link->second->send(std::move(message));
}

void ControlLinkSet::close(std::function<void()> closed) {
  if (closed_) return;
  closed_ = std::move(closed);
  close_limit_ = std::make_unique<loop::Timer>(loop_, [this] {
    links_.clear();
    finish_close();
  });
  close_limit_->start(kCloseLimit);
  for (auto& [rank, link] : links_) link->begin_close();
  finish_close();
}

void ControlLinkSet::finish_close() {
  for (const auto& [rank, link] : links_) {
    if (!link->ended()) return;
  }
  if (!close_limit_) return;  // reported already
  // From the timer, so that no link and no caller is on the stack when the owner destroys everything.
  close_limit_ = std::make_unique<loop::Timer>(loop_, [this] {
    links_.clear();
    close_limit_.reset();
    const auto report = closed_;
    report();
  });
  close_limit_->start(Millis(0));
}

void ControlLinkSet::release() {
  released_ = true;
  links_.clear();
  close_limit_.reset();
}

}  // namespace hvd::transport
