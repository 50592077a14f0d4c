#include <catch2/catch.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>

#include <gloo/context.h>

#include "test/runtime/collectives/gloo/rank_threads.h"

namespace hvd::collectives {
namespace {

Status failure_of(const StockTcpOptions& options, StockTcpStore store) {
  return make_stock_tcp_context(options, std::move(store)).status();
}

TEST_CASE("The stock transport takes numeric addresses only", "[unit][collectives]") {
  MemoryStore store;
  const Status status = failure_of({0, 2, "localhost", "x", Millis(1000)}, store.view());
  CHECK(status.to_string() == "invalid argument: stock Gloo transport: 'localhost' is not a numeric IP address");
}

TEST_CASE("The stock transport refuses a timeout of zero, which Gloo takes for at once", "[unit][collectives]") {
  MemoryStore store;
  const Status status = failure_of({0, 2, "127.0.0.1", "x", Millis(0)}, store.view());
  CHECK(status.to_string() == "invalid argument: stock Gloo transport: the timeout must be positive, not 0 ms");
}

TEST_CASE("An error of the store ends the bring-up with the store's words", "[multi][collectives]") {
  const StockTcpStore store{[](const std::string&, const Bytes&) { return Status::ok(); },
                            [](const std::string& key, Deadline) -> Result<Bytes> {
                              return Status::timeout("the store at 10.0.0.1:9 did not answer for " + key);
                            }};
  const Status status = failure_of({0, 2, "127.0.0.1", "epoch1", Millis(1000)}, store);
  CHECK(status.code() == StatusCode::kTimeout);
  CHECK_THAT(status.message(), Catch::Contains("the store at 10.0.0.1:9 did not answer for epoch1/"));
}

int sockets_left_open_on_exec() {
  int count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    int protocol = 0;
    socklen_t size = sizeof(protocol);
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != IPPROTO_TCP) continue;
    count += (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0 ? 1 : 0;
  }
  closedir(dir);
  return count;
}

TEST_CASE("No socket of the stock transport survives exec", "[multi][collectives]") {
  std::vector<int> left(3, -1);
  run_ranks(3, [&](int rank, GlooBackend& backend) {
    (void)run_call(backend, {.op = OpType::kBarrier});  // everybody is connected
    left[static_cast<std::size_t>(rank)] = sockets_left_open_on_exec();
    (void)run_call(backend, {.op = OpType::kBarrier});  // nobody closes while another looks
  }, {.over = Over::kStockTcp});
  for (const int n : left) CHECK(n == 0);
}

}  // namespace
}  // namespace hvd::collectives
