#include "launcher/job/host_resolver.h"

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
};

HostResolver::HostResolver(Loop& loop, std::vector<std::string> names, OnDone on_done)
    : loop_(loop),
      names_(std::move(names)),
      on_done_(std::move(on_done)),
      found_(names_.size()),
      patience_(loop, [this] { done(); }) {}

HostResolver::~HostResolver() {
  for (Lookup* lookup : pending_) lookup->owner = nullptr;
}

void HostResolver::start() {
  left_ = names_.size();
  patience_.start(kPatience);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    auto lookup = std::make_unique<Lookup>(Lookup{.raw = {}, .owner = this, .index = i});
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
          self->owner->finished(self->index, std::move(addresses));
        },
        names_[i].c_str(), nullptr, &hints);
    if (rc == 0) {
      pending_.push_back(lookup.release());
    } else {
      finished(i, {});
    }
  }
}

void HostResolver::finished(std::size_t index, std::vector<std::string> addresses) {
  found_[index] = std::move(addresses);
  if (--left_ == 0) done();
}

void HostResolver::done() {
  patience_.stop();
  for (Lookup* lookup : std::exchange(pending_, {})) lookup->owner = nullptr;
  if (const OnDone callback = std::exchange(on_done_, nullptr)) callback(found_);
}

}  // namespace hvd::launcher
