#include "bench/cpp/stock_tcp.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

namespace hvd::bench {
namespace {

// Our store in Gloo's clothes; an error becomes the exception that make_stock_tcp_context catches.
class StoreAdapter final : public gloo::rendezvous::Store {
 public:
  StoreAdapter(StockTcpStore store, std::string prefix, Millis timeout)
      : store_(std::move(store)), prefix_(std::move(prefix)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    const Status status = store_.put(prefix_ + key, Bytes(data.begin(), data.end()));
    if (!status.is_ok()) throw StoreError(status);
  }
  std::vector<char> get(const std::string& key) override {
    const Result<Bytes> value = store_.wait(prefix_ + key, Deadline::after(timeout_));
    if (!value.is_ok()) throw StoreError(value.status());
    return {value.value().begin(), value.value().end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    for (const std::string& key : keys) {
      const Result<Bytes> value = store_.wait(prefix_ + key, Deadline::after(timeout));
      if (!value.is_ok()) throw StoreError(value.status());
    }
  }

  struct StoreError : std::runtime_error {
    explicit StoreError(Status s) : std::runtime_error(s.message()), status(std::move(s)) {}
    Status status;
  };

 private:
  StockTcpStore store_;
  std::string prefix_;
  Millis timeout_;
};

// Descriptor and the name of what is behind it ("socket:[4711]"): meanwhile another thread may close a descriptor and
// its number stand for something new.
using OpenFile = std::pair<int, std::string>;

std::set<OpenFile> open_files() {
  std::set<OpenFile> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir("/proc/self/fd"), closedir);
  if (!dir) return files;
  while (const dirent* entry = readdir(dir.get())) {
    const int fd = std::atoi(entry->d_name);
    char name[64];
    const ssize_t size = readlinkat(dirfd(dir.get()), entry->d_name, name, sizeof(name));
    if (size > 0 && fd != dirfd(dir.get())) files.emplace(fd, std::string(name, static_cast<std::size_t>(size)));
  }
  return files;
}

bool is_tcp(int fd) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
}

// Gloo hides its sockets, so they are found by comparison. A TCP socket that another thread opened meanwhile gets the
// same settings, which do no harm: they are what all our connections have.
void harden_new_sockets(const std::set<OpenFile>& before) {
  for (const OpenFile& file : open_files()) {
    const int fd = file.first;
    if (before.count(file) != 0 || !is_tcp(fd)) continue;
    const auto set = [fd](int level, int name, int value) { (void)setsockopt(fd, level, name, &value, sizeof(value)); };
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  }
}

// The device's thread inherits the signal mask; Gloo writes without MSG_NOSIGNAL, so SIGPIPE would kill the process.
std::shared_ptr<gloo::transport::Device> make_device(const std::string& address, int family) {
  sigset_t pipe;
  sigset_t before;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const auto restore = [&before] { pthread_sigmask(SIG_SETMASK, &before, nullptr); };
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    attributes.ai_family = family;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    restore();
    return device;
  } catch (...) {
    restore();
    throw;
  }
}

// 0 when `address` is not numeric: names would go through the resolver, whose failures Gloo does not check.
int family_of(const std::string& address) {
  in6_addr parsed;
  if (inet_pton(AF_INET, address.c_str(), &parsed) == 1) return AF_INET;
  return inet_pton(AF_INET6, address.c_str(), &parsed) == 1 ? AF_INET6 : 0;
}

}  // namespace

Result<std::shared_ptr<gloo::Context>> make_stock_tcp_context(const StockTcpOptions& options, StockTcpStore store) {
  const int family = family_of(options.address);
  if (family == 0) {
    return Status::invalid_argument("stock Gloo transport: '" + options.address + "' is not a numeric IP address");
  }
  if (options.timeout <= Millis(0)) {
    return Status::invalid_argument("stock Gloo transport: the timeout must be positive, not " +
                                    std::to_string(options.timeout.count()) + " ms");
  }
  const std::string what = "stock Gloo transport on " + options.address;
  try {
    StoreAdapter adapter(std::move(store), options.key_prefix + "/", options.timeout);
    const std::set<OpenFile> before = open_files();
    std::shared_ptr<gloo::transport::Device> device = make_device(options.address, family);
    auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
    context->setTimeout(options.timeout);
    context->connectFullMesh(adapter, device);
    harden_new_sockets(before);
    return std::shared_ptr<gloo::Context>(std::move(context));
  } catch (const StoreAdapter::StoreError& e) {
    return e.status.annotate(what);
  } catch (const std::exception& e) {
    return Status::internal(e.what()).annotate(what);
  }
}

}  // namespace hvd::bench
