#include "launcher/join/host_gathering.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "runtime/base/failpoint.h"

namespace hvd::launcher {
namespace {

struct Place {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&address); }
};

Result<Place> place_of(const std::string& address, std::uint16_t port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) {
    return Status::invalid_argument("--listen: '" + address + "' is not a numeric address");
  }
  Place place;
  place.size = list->ai_addrlen;
  std::memcpy(&place.address, list->ai_addr, list->ai_addrlen);
  ::freeaddrinfo(list);
  return place;
}

// The numeric address, and the port; of an IPv4 peer of an IPv6 socket, as IPv4.
std::pair<std::string, std::string> text_of(Place& place) {
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  ::getnameinfo(place.get(), place.size, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  constexpr std::string_view kMapped = "::ffff:";
  std::string address = host;
  if (address.starts_with(kMapped) && address.find('.') != std::string::npos) address.erase(0, kMapped.size());
  return {address, port};
}

// Where others call who listens at such an address: all addresses of this node are none of them.
std::string reachable(const std::string& address) {
  utsname names = {};
  return (address == "0.0.0.0" || address == "::") && ::uname(&names) == 0 ? names.nodename : address;
}

std::string bracketed(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

std::string names_text(std::vector<std::string> names) {
  constexpr std::size_t kShown = 8;
  std::ranges::sort(names, comes_before);
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kShown ? text + " and " + std::to_string(names.size() - kShown) + " more" : text;
}

// By name, but those of one node follow its first.
void put_in_order(std::vector<JoinedHost>& hosts) {
  std::ranges::sort(hosts, [](const JoinedHost& a, const JoinedHost& b) { return comes_before(a.name, b.name); });
  const auto node_of = [&](const JoinedHost& host) { return host.node.empty() ? host.name : host.node; };
  std::map<std::string, std::size_t> order;  // of nodes, by their first host
  for (const JoinedHost& host : hosts) order.try_emplace(node_of(host), order.size());
  std::ranges::stable_sort(
      hosts, [&](const JoinedHost& a, const JoinedHost& b) { return order[node_of(a)] < order[node_of(b)]; });
}

// Whether the other end is closed. What it says is dropped, as the job does: left there, it would wake us again and
// again.
bool has_ended(int socket) {
  std::array<char, 4096> said;
  const ssize_t size = ::recv(socket, said.data(), said.size(), MSG_DONTWAIT);
  return size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

HostGathering::HostGathering(MainLoop& loop, const GatherConfig& config, const crypto::Secret& token)
    : loop_(loop),
      config_(config),
      token_(token),
      pause_(loop.get(), [this] { poll_->watch(true, false); }),
      cleanup_(loop.get(), [this] { retired_.clear(); }),
      admission_(admission::Limits::for_ranks(config.hosts)) {}

HostGathering::~HostGathering() = default;

std::size_t HostGathering::max_descriptors(int hosts) {
  // A stranger has one descriptor, who is introduced has two.
  return 3 * admission::Limits::for_ranks(hosts).room;
}

Result<std::unique_ptr<HostGathering>> HostGathering::open(MainLoop& loop, const GatherConfig& config,
                                                           const crypto::Secret& token) {
  std::unique_ptr<HostGathering> self(new HostGathering(loop, config, token));
  HVD_RETURN_IF_ERROR(self->listen());
  return self;
}

Status HostGathering::listen() {
  HVD_FAILPOINT_RETURN("gather.listen");
  HVD_ASSIGN_OR_RETURN(Place place, place_of(config_.listen_address, config_.port));
  listener_ = Fd(::socket(place.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int fd = listener_.get();
  const int yes = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (fd < 0 || ::bind(fd, place.get(), place.size) != 0 || ::listen(fd, SOMAXCONN) != 0) {
    return Status::from_errno("cannot listen at " + config_.listen_address + " port " + std::to_string(config_.port),
                              errno);
  }
  ::getsockname(fd, place.get(), &place.size);
  const auto [address, port] = text_of(place);
  address_ = bracketed(address) + ":" + port;
  call_at_ = bracketed(reachable(address)) + ":" + port;
  poll_ = std::make_unique<loop::Poll>(loop_.get(), fd, [this](bool, bool) { accept_some(); });
  poll_->watch(true, false);
  return Status::ok();
}

void HostGathering::accept_some() {
  for (int i = 0; i < admission::kAcceptsPerTurn; ++i) {
    Place peer;
    Fd fd(HVD_FAILPOINT_CALL("gather.accept",
                             ::accept4(listener_.get(), peer.get(), &peer.size, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (fd.valid()) {
      add(std::move(fd), text_of(peer).first);
      continue;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    // As without descriptors: who waits still waits, so looking again at once would spin.
    if (const auto evicted = admission_.evict_stranger()) forget(*evicted);
    poll_->watch(false, false);
    return pause_.start(kPauseAfterFailure);
  }
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
  if (refusal.empty()) refusal = guest.name.empty() ? refusal_of(request.value()) : "it has asked before";
  const Bytes verdict = encode(JoinVerdict{.accepted = refusal.empty(), .reason = refusal});
  guest.link->write(verdict);
  if (!refusal.empty()) {
    guest.link->close_when_written();
    guest.name.clear();
    return guest.deadline->start(kProofDeadline);  // for the verdict to be taken
  }
  guest.deadline->stop();
  guest.name = request.value().name;
  guest.node = request.value().node;
  if (count() == static_cast<std::size_t>(config_.hosts)) loop_.stop();
}

std::string HostGathering::refusal_of(const JoinRequest& request) const {
  if (request.version != HVD_VERSION) {
    return "this host has version " + request.version + ", the launcher " + HVD_VERSION +
           ": install the same version on all hosts";
  }
  if (const Status status = check_host_name(request.name); !status.is_ok()) return status.message();
  const Status node = request.node.empty() ? Status::ok() : check_host_name(request.node);
  if (!node.is_ok()) return node.message();
  for (const auto& [id, other] : guests_) {
    if (other.name != request.name) continue;
    return "a host of the name " + request.name + " has joined already, from " + other.address +
           "; --host-name gives this one another name";
  }
  const bool is_known = taken_ && std::ranges::find(*taken_, request.name) != taken_->end();
  if (is_known) return "a host of the name " + request.name + " has joined already, and the job has begun";
  if (!taken_ && count() < static_cast<std::size_t>(config_.hosts)) return "";
  return "the job has its " + std::to_string(config_.hosts) + " hosts already";
}

void HostGathering::ended(admission::ConnectionId id) {
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;  // the job's: the link says so to who takes it over
  const Guest& guest = found->second;
  if (guest.link->greeted() && !guest.link->proven()) {
    ++unproven_;
    last_unproven_ = guest.address;
  }
  forget(id);
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

std::size_t HostGathering::count() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(guests_, [](const auto& one) { return !one.second.name.empty(); }));
}

std::string HostGathering::progress() const {
  std::vector<std::string> names;
  for (const auto& [id, guest] : guests_) {
    if (!guest.name.empty()) names.push_back(guest.name);
  }
  const std::string who = names.empty() ? "" : " (" + names_text(names) + ")";
  std::string text = std::to_string(names.size()) + " of " + std::to_string(config_.hosts) + " hosts have joined" + who;
  if (unproven_ > 0) {
    text += "; " + std::to_string(unproven_) + (unproven_ == 1 ? " connection" : " connections") +
            " did not have the token, the last from " + last_unproven_;
  }
  return text;
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
  loop::Timer message(loop_.get(), [&] { print(progress()); });
  deadline.start(patience);
  message.start_repeating(kMessage);
  while (!is_late && !is_gone && count() < static_cast<std::size_t>(config_.hosts)) loop_.run();
  if (is_gone) return Status::aborted("the process that started this job and waits for its results is gone");
  if (count() == static_cast<std::size_t>(config_.hosts)) return Status::ok();
  return Status::timeout("after " + std::to_string(patience.count() / 1000) + " s (--start-timeout) " + progress() +
                         "; each calls `horovodrun --join " + call_at_ + "`");
}

std::vector<JoinedHost> HostGathering::take() {
  std::vector<JoinedHost> hosts;
  std::vector<std::string> names;
  for (auto it = guests_.begin(); it != guests_.end();) {
    if (it->second.name.empty()) {
      ++it;
      continue;
    }
    names.push_back(it->second.name);
    hosts.push_back({it->second.name, it->second.node, it->second.address, std::move(it->second.link)});
    it = guests_.erase(it);
  }
  // Who comes now is refused: a few places are enough for that. Who was about to ask comes again.
  while (!guests_.empty()) forget(guests_.begin()->first);
  admission_ = admission::Admission(admission::Limits::for_ranks(0));
  put_in_order(hosts);
  taken_ = std::move(names);
  return hosts;
}

}  // namespace hvd::launcher
