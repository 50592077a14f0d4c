#include "launcher/network/host_resolver.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <utility>

namespace hvd::launcher {
namespace {

std::vector<std::string> numeric_addresses(const addrinfo* list) {
  std::vector<std::string> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      char text[NI_MAXHOST] = {};
      if (::getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) continue;
      if (std::find(found.begin(), found.end(), text) == found.end()) found.emplace_back(text);
    }
  }
  return found;
}

}  // namespace

// One request; it frees itself when libuv calls back, which may be after the resolver has gone.
struct HostResolver::Lookup {
  uv_getaddrinfo_t raw;
  HostResolver* owner;
  std::size_t index;
  bool by_ssh;
};

HostResolver::HostResolver(MainLoop& loop, std::vector<std::string> names, std::string ssh_program, Millis patience,
                           OnDone on_done)
    : loop_(loop),
      names_(std::move(names)),
      ssh_program_(std::move(ssh_program)),
      on_done_(std::move(on_done)),
      found_(names_.size()),
      left_(names_.size()),
      patience_(patience),
      deadline_(loop.get(), [this] { done(); }) {}

HostResolver::~HostResolver() {
  for (Lookup* lookup : pending_) lookup->owner = nullptr;
}

void HostResolver::start() {
  deadline_.start(patience_);
  for (std::size_t i = 0; i < names_.size(); ++i) look_up(i, names_[i], false);
}

void HostResolver::look_up(std::size_t index, const std::string& name, bool by_ssh) {
  auto lookup = std::make_unique<Lookup>(Lookup{.raw = {}, .owner = this, .index = index, .by_ssh = by_ssh});
  lookup->raw.data = lookup.get();
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  const int rc = uv_getaddrinfo(
      loop_.get(), &lookup->raw,
      [](uv_getaddrinfo_t* raw, int status, addrinfo* list) {
        const std::unique_ptr<Lookup> self(static_cast<Lookup*>(raw->data));
        std::vector<std::string> addresses = status == 0 ? numeric_addresses(list) : std::vector<std::string>();
        uv_freeaddrinfo(list);
        if (self->owner == nullptr) return;
        std::erase(self->owner->pending_, self.get());
        self->owner->looked_up(self->index, {std::move(addresses), self->by_ssh});
      },
      name.c_str(), nullptr, &hints);
  if (rc != 0) return finished(index, {});
  pending_.push_back(lookup.release());
}

void HostResolver::looked_up(std::size_t index, ResolvedHost host) {
  if (!host.addresses.empty() || host.by_ssh || ssh_program_.empty()) return finished(index, std::move(host));
  to_ask_.push_back(index);
  ask_ssh();
}

void HostResolver::ask_ssh() {
  while (!to_ask_.empty() && asking_ < kMaxQueries) {
    const std::size_t index = to_ask_.back();
    to_ask_.pop_back();
    auto query = SshConfigQuery::start(loop_, ssh_program_, names_[index], [this, index](const std::string& hostname) {
      --asking_;
      ssh_answered(index, hostname);
      ask_ssh();
    });
    if (query.is_ok()) {
      ++asking_;
      queries_.push_back(std::move(query).value());
    } else {
      finished(index, {});  // the launch itself will say what is wrong with ssh
    }
  }
}

void HostResolver::ssh_answered(std::size_t index, const std::string& hostname) {
  if (hostname.empty() || hostname == names_[index]) return finished(index, {});
  look_up(index, hostname, true);
}

void HostResolver::finished(std::size_t index, ResolvedHost host) {
  found_[index] = std::move(host);
  if (--left_ == 0) done();
}

void HostResolver::done() {
  deadline_.stop();
  for (Lookup* lookup : std::exchange(pending_, {})) lookup->owner = nullptr;
  if (const OnDone callback = std::exchange(on_done_, nullptr)) callback(found_);
}

}  // namespace hvd::launcher
