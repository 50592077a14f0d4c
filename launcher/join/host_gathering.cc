#include "launcher/join/host_gathering.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/loop/poll.h"

namespace hvd::launcher {
namespace {

// Whether the other end is closed. What it says is dropped, as the job does: left there, it would wake us again and
// again.
bool has_ended(int socket) {
  std::array<char, 4096> said;
  const ssize_t size = ::recv(socket, said.data(), said.size(), MSG_DONTWAIT);
  return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

HostGathering::HostGathering(MainLoop& loop, const GatherConfig& config, bool is_elastic, const crypto::Secret& token)
    : loop_(loop),
      config_(config),
      token_(token),
      called_(config.hosts, is_elastic),
      cleanup_(loop.get(), [this] { retired_.clear(); }),
      news_(loop.get(), [this] { changed(); }),
      admission_(admission::Limits::for_ranks(config.hosts)) {}

HostGathering::~HostGathering() = default;

std::size_t HostGathering::max_descriptors(int hosts) {
  // A stranger has one descriptor, who is introduced has two.
  return 3 * admission::Limits::for_ranks(hosts).room;
}

Result<std::unique_ptr<HostGathering>> HostGathering::open(MainLoop& loop, const GatherConfig& config, bool is_elastic,
                                                           const crypto::Secret& token) {
  std::unique_ptr<HostGathering> made(new HostGathering(loop, config, is_elastic, token));
  HostGathering* const self = made.get();
  const auto give_up_stranger = [self] {
    if (const auto evicted = self->admission_.evict_stranger()) self->forget(*evicted);
  };
  HVD_ASSIGN_OR_RETURN(
      made->listener_,
      JoinListener::open(loop, config,
                         {.on_call = [self](Fd fd, const std::string& address) { self->add(std::move(fd), address); },
                          .on_shortage = give_up_stranger}));
  return made;
}

void HostGathering::add(Fd fd, const std::string& address) {
  const admission::ConnectionId id = ++last_id_;
  const auto decision = admission_.arrive(id, admission::source_of(address));
  if (decision.evicted) forget(*decision.evicted);
  if (!decision.admitted) return;
  auto link = SealedLink::open(loop_, std::move(fd), SealedLink::Side::kLauncher, token_,
                               {.on_proven = [this, id] { admission_.prove(id); },
                                .on_record = [this, id](ByteSpan record) { asked(id, record); },
                                .on_end = [this, id](const std::string&) { ended(id); },
                                .on_progress = {},
                                .on_introduced = [this, id] { introduced(id); }});
  if (!link.is_ok()) return admission_.leave(id);  // without descriptors: who has called tries again
  Guest& guest = guests_[id];
  guest.address = address;
  guest.link = std::move(link).value();
  guest.deadline = std::make_unique<loop::Timer>(loop_.get(), [this, id] { ended(id); });
  guest.deadline->start(admission::kIntroductionDeadline);
}

void HostGathering::introduced(admission::ConnectionId id) {
  if (const auto evicted = admission_.introduce(id)) forget(*evicted);
  if (const auto found = guests_.find(id); found != guests_.end()) found->second.deadline->start(kProofDeadline);
}

void HostGathering::asked(admission::ConnectionId id, ByteSpan record) {
  HVD_FAILPOINT("gather.asked");
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;  // the job's, which has not begun to listen to it
  Guest& guest = found->second;
  const auto request = decode_join_request(record, HVD_VERSION);
  std::string refusal = request.is_ok() ? "" : request.status().message();
  if (refusal.empty()) {
    refusal = guest.name.empty() ? called_.ask(request.value(), guest.address) : "it has asked before";
  }
  const Bytes verdict = encode(JoinVerdict{.accepted = refusal.empty(), .reason = refusal});
  guest.link->write(verdict);
  if (!refusal.empty()) {
    if (const std::string name = std::exchange(guest.name, ""); !name.empty()) left(name);
    guest.link->close_when_written();
    return guest.deadline->start(kProofDeadline);  // for the verdict to be taken
  }
  guest.deadline->stop();
  guest.name = request.value().name;
  news_.start(Millis(0));
  if (called_.is_complete()) loop_.stop();
}

void HostGathering::ended(admission::ConnectionId id) {
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;  // the job's: the link says so to who takes it over
  const Guest& guest = found->second;
  if (!guest.name.empty() && called_.is_closed()) return;  // the same, and it will be
  if (guest.link->greeted() && !guest.link->proven()) called_.not_proven(guest.address);
  const std::string name = guest.name;
  forget(id);
  if (!name.empty()) left(name);
}

void HostGathering::left(const std::string& name) {
  called_.left(name);
  changed();
}

void HostGathering::changed() {
  if (on_change_ && !called_.has_ended()) on_change_();
}

void HostGathering::forget(admission::ConnectionId id) {
  admission_.leave(id);
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  found->second.link->close();
  retired_.push_back(std::move(found->second));
  guests_.erase(found);
  cleanup_.start(Millis(0));
}

Status HostGathering::wait(Millis patience, const std::function<void(const std::string&)>& print,
                           std::optional<int> asker) {
  bool is_late = false;
  bool is_gone = false;
  std::optional<loop::Poll> watch;
  if (asker) {
    watch.emplace(loop_.get(), *asker, [&](bool, bool) {
      is_gone = has_ended(*asker);
      if (is_gone) loop_.stop();
    });
    watch->watch(true, false);
  }
  loop::Timer deadline(loop_.get(), [&] {
    is_late = true;
    loop_.stop();
  });
  loop::Timer message(loop_.get(), [&] { print(called_.progress()); });
  deadline.start(patience);
  message.start_repeating(kMessage);
  while (!is_late && !is_gone && !called_.is_complete()) loop_.run();
  if (is_gone) return Status::aborted("the process that started this job and waits for its results is gone");
  if (called_.is_complete()) return Status::ok();
  return Status::timeout("after " + std::to_string(patience.count() / 1000) + " s (--start-timeout) " +
                         called_.progress() + "; each calls `horovodrun --join " + listener_->call_at() + "`");
}

void HostGathering::begin() {
  called_.begin();
  if (!called_.is_closed()) return;
  // Who comes now is refused: a few places are enough for that. Who was about to ask comes again.
  for (auto it = guests_.begin(); it != guests_.end();) {
    const auto id = it->first;
    const bool may_stay = !it->second.name.empty();
    ++it;
    if (!may_stay) forget(id);
  }
  admission_ = admission::Admission(admission::Limits::for_ranks(0));
}

std::unique_ptr<SealedLink> HostGathering::take(const std::string& name) {
  const auto found = std::ranges::find_if(guests_, [&](const auto& one) { return one.second.name == name; });
  if (found == guests_.end() || !called_.take(name)) return nullptr;
  auto link = std::move(found->second.link);
  admission_.leave(found->first);
  guests_.erase(found);
  return link;
}

void HostGathering::let_go(const std::string& name) {
  if (called_.let_go(name)) changed();
}

void HostGathering::turn_away(const std::string& name) {
  const auto found = std::ranges::find_if(guests_, [&](const auto& one) { return one.second.name == name; });
  if (found == guests_.end()) return;
  forget(found->first);
  left(name);
}

void HostGathering::end() {
  called_.end();
  for (auto& [id, guest] : guests_) {
    if (guest.name.empty()) continue;
    guest.link->write(as_bytes(kJobIsOver));
    guest.link->close_when_written();
  }
}

}  // namespace hvd::launcher
