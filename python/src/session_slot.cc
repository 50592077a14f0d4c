#include "python/src/session_slot.h"

#include <pybind11/pybind11.h>

#include <utility>

#include "python/src/error_map.h"
#include "python/src/published_session.h"

namespace hvd::python {

SessionSlot& session_slot() {
  // Never destroyed: the interpreter may still hold handles when static destructors run.
  static auto* slot = new SessionSlot;
  return *slot;
}

void SessionSlot::check_fork() {
  if (owner_.same_process()) return;
  if (session_ != nullptr) {
    inherited_ = session_->topology();
    session_->abandon_after_fork();
  }
  // Leaked on purpose: destroying them would join threads that were not forked.
  if (session_ != nullptr) new std::shared_ptr<Session>(std::move(session_));
  if (meeting_ != nullptr) new std::shared_ptr<starters::Meeting>(std::move(meeting_));
  session_ = nullptr;
  meeting_ = nullptr;
}

std::shared_ptr<Session> SessionSlot::get() {
  check_fork();
  return session_;
}

std::shared_ptr<Session> SessionSlot::require_topology() {
  auto session = get();
  if (session == nullptr) throw pybind11::value_error("Horovod has not been initialized; use hvd.init().");
  return session;
}

JobTopology SessionSlot::topology() {
  check_fork();
  return session_ == nullptr && inherited_ ? *inherited_ : require_topology()->topology();
}

bool SessionSlot::is_child_of_rank() {
  check_fork();
  return session_ == nullptr && inherited_ && inherited_->size > 1;
}

std::shared_ptr<Session> SessionSlot::require_running() {
  auto session = get();
  if (session == nullptr) {
    if (inherited_) raise_if_error(Status::precondition("a forked process cannot use the session of its parent"));
    raise_if_error(Status::precondition("Horovod has not been initialized; use hvd.init()."));
  }
  return session;
}

void SessionSlot::set(std::shared_ptr<Session> session) {
  publish_session(session, session->topology());
  session_ = std::move(session);
  inherited_.reset();
  owner_ = ForkMark();
}

std::shared_ptr<Session> SessionSlot::take() {
  check_fork();
  publish_session(nullptr, inherited_);
  return std::exchange(session_, nullptr);
}

std::shared_ptr<starters::Meeting> SessionSlot::meeting() {
  check_fork();
  return meeting_;
}

void SessionSlot::set_meeting(std::shared_ptr<starters::Meeting> meeting) {
  meeting_ = std::move(meeting);
  owner_ = ForkMark();
}

}  // namespace hvd::python
