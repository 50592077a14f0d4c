#include "launcher/network/host_resolver.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "runtime/base/failpoint.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread.h"

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

std::vector<std::string> addresses_of_name(const std::string& name) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return {};
  std::vector<std::string> addresses = numeric_addresses(list);
  ::freeaddrinfo(list);
  return addresses;
}

}  // namespace

// What the resolver shares with the threads that look up. getaddrinfo may hold them for as long as it likes: those may
// outlive it, and touch nothing else. The others end with it, before anybody hears what was found, so that whatever is
// started next finds what they took, in every run, where threads or memory are few.
struct HostResolver::Desk {
  struct Question {
    std::size_t index;
    std::string name;
    bool by_ssh;
  };
  using Answer = std::function<void(std::size_t, ResolvedHost)>;

  // True when another thread is needed for it.
  bool add(Question question) HVD_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    waiting.push_back(std::move(question));
    changed.notify_one();
    if (threads == kMaxThreads || waiting.size() + asking.size() <= threads) return false;
    ++threads;
    return true;
  }
  // There is none for it. Without another one nobody would take what waits: those questions are returned.
  std::deque<Question> thread_failed() HVD_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return --threads == 0 ? std::exchange(waiting, {}) : std::deque<Question>();
  }
  // Nothing when there will be no more to look up: the thread that asks ends.
  std::optional<Question> take() HVD_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    while (waiting.empty() && !is_closed) changed.wait(mutex);
    if (waiting.empty()) return std::nullopt;
    Question question = std::move(waiting.front());
    waiting.pop_front();
    asking.insert(std::this_thread::get_id());
    return question;
  }
  void answer(std::size_t index, ResolvedHost host) HVD_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    asking.erase(std::this_thread::get_id());
    if (on_answer) on_answer(index, std::move(host));
  }
  // Nobody hears an answer any more. Returns when all threads have ended but those in getaddrinfo.
  void close(std::vector<std::jthread>& all) HVD_EXCLUDES(mutex) {
    {
      const MutexLock lock(mutex);
      waiting.clear();
      on_answer = nullptr;
      is_closed = true;
      for (std::jthread& one : all) {
        if (asking.count(one.get_id()) != 0) one.detach();
      }
    }
    changed.notify_all();
    all.clear();
  }
  void serve() {
    while (auto question = take()) answer(question->index, {addresses_of_name(question->name), question->by_ssh});
  }

  Mutex mutex;
  std::condition_variable_any changed;
  std::deque<Question> waiting HVD_GUARDED_BY(mutex);
  std::set<std::thread::id> asking HVD_GUARDED_BY(mutex);
  std::size_t threads HVD_GUARDED_BY(mutex) = 0;
  bool is_closed HVD_GUARDED_BY(mutex) = false;
  Answer on_answer HVD_GUARDED_BY(mutex);
};

HostResolver::HostResolver(MainLoop& loop, std::vector<std::string> names, std::string ssh_program, Millis patience,
                           OnDone on_done)
    : loop_(loop),
      answers_(loop),
      desk_(std::make_shared<Desk>()),
      names_(std::move(names)),
      ssh_program_(std::move(ssh_program)),
      on_done_(std::move(on_done)),
      found_(names_.size()),
      left_(names_.size()),
      patience_(patience),
      deadline_(loop.get(), [this] { done(); }) {
  const MutexLock lock(desk_->mutex);
  desk_->on_answer = [this](std::size_t index, ResolvedHost host) {
    answers_.post([this, index, found = std::move(host)] { looked_up(index, found); });
  };
}

HostResolver::~HostResolver() { desk_->close(threads_); }

void HostResolver::start() {
  deadline_.start(patience_);
  for (std::size_t i = 0; i < names_.size(); ++i) look_up(i, names_[i], false);
}

void HostResolver::look_up(std::size_t index, const std::string& name, bool by_ssh) {
  if (!desk_->add({.index = index, .name = name, .by_ssh = by_ssh})) return;
  try {
    threads_.push_back(start_thread("hvd-lookup", [desk = desk_](const std::stop_token&) { desk->serve(); }));
  } catch (const std::system_error& error) {
    for (const Desk::Question& question : desk_->thread_failed()) {
      std::fprintf(stderr, "horovodrun: the name %s is not looked up: no thread for it: %s\n", question.name.c_str(),
                   error.code().message().c_str());
      desk_->answer(question.index, {.addresses = {}, .by_ssh = question.by_ssh});
    }
  }
}

void HostResolver::looked_up(std::size_t index, ResolvedHost host) {
  if (!on_done_) return;  // it comes too late
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
  if (!on_done_) return;  // it comes too late
  if (hostname.empty() || hostname == names_[index]) return finished(index, {});
  look_up(index, hostname, true);
}

void HostResolver::finished(std::size_t index, ResolvedHost host) {
  found_[index] = std::move(host);
  if (--left_ == 0) done();
}

void HostResolver::done() {
  HVD_FAILPOINT("hosts.found");
  deadline_.stop();
  to_ask_.clear();
  desk_->close(threads_);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    // A small container may have no /etc/hosts: this name means the same without it.
    if (names_[i] == "localhost" && found_[i].addresses.empty()) found_[i].addresses = {"127.0.0.1", "::1"};
  }
  if (const OnDone callback = std::exchange(on_done_, nullptr)) callback(found_);
}

}  // namespace hvd::launcher
