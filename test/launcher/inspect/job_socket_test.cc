#include "launcher/inspect/job_socket.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "runtime/base/socket_io.h"
#include "test/support/other_user.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

AbstractAddress address_of(uid_t user, pid_t job) {
  return AbstractAddress("hvd-job-" + std::to_string(user) + "-" + std::to_string(job));
}

Fd connect_to_job_of(uid_t user) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress address = address_of(user, ::getpid());
  REQUIRE(::connect(fd.get(), address.get(), address.size()) == 0);
  return fd;
}

}  // namespace

TEST_CASE("JobSocket waits for descriptors without spinning, and then answers", "[job]") {
  MainLoop loop;
  auto opened = JobSocket::open(loop, [&loop](const std::string& word, const JobSocket::Reply& reply) {
    reply("answer to " + word, true);
    loop.stop();
    return true;
  });
  REQUIRE(opened.is_ok());
  const Fd client = connect_to_job_of(::geteuid());
  REQUIRE(::send(client.get(), "word\n", 5, 0) == 5);

  rlimit former = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &former) == 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = former.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  int turns = 0;
  loop::Timer relief(loop.get(), [&] { ::setrlimit(RLIMIT_NOFILE, &former); });
  relief.start(Millis(30));
  loop::Timer deadline(loop.get(), [&loop] { loop.stop(); });
  deadline.start(Millis(20000));
  uv_prepare_t prepare = {};
  uv_prepare_init(loop.get(), &prepare);
  prepare.data = &turns;
  uv_prepare_start(&prepare, [](uv_prepare_t* handle) { ++*static_cast<int*>(handle->data); });
  loop.run();
  ::setrlimit(RLIMIT_NOFILE, &former);
  uv_close(reinterpret_cast<uv_handle_t*>(&prepare), nullptr);
  uv_run(loop.get(), UV_RUN_NOWAIT);
  CHECK(deadline.active());
  CHECK(turns < 20);
}

TEST_CASE("JobSocket hangs up on other users, and on more clients than it has places for", "[job]") {
  MainLoop loop;
  auto opened = JobSocket::open(loop, [](const std::string&, const JobSocket::Reply&) { return true; });
  REQUIRE(opened.is_ok());
  // Whether the other end hangs up, and not only at the deadline of its clients.
  const auto is_refused = [&loop](const Fd& client) {
    loop::Timer deadline(loop.get(), [&loop] { loop.stop(); });
    deadline.start(JobSocket::kDeadline / 4);
    loop::Poll poll(loop.get(), client.get(), [&loop](bool, bool) { loop.stop(); });
    poll.watch(true, false);
    loop.run();
    char byte = 0;
    return deadline.active() && ::recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  std::optional<Fd> stranger;
  {
    const OtherUser other;
    if (other.is_there()) stranger = connect_to_job_of(0);
  }
  if (stranger) CHECK(is_refused(*stranger));
  std::vector<Fd> clients;
  while (clients.size() < JobSocket::kMaxClients) {
    clients.push_back(connect_to_job_of(::geteuid()));
    uv_run(loop.get(), UV_RUN_NOWAIT);
  }
  CHECK(is_refused(connect_to_job_of(::geteuid())));
}

TEST_CASE("A process that listens in a job's place is not asked", "[job]") {
  const pid_t job = ::fork();
  REQUIRE(job >= 0);
  if (job == 0) {
    ::pause();
    ::_exit(0);
  }
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const AbstractAddress address = address_of(::geteuid(), job);
  REQUIRE(::bind(listener.get(), address.get(), address.size()) == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  CHECK(ask_job(job, "status") == 1);
  const Fd client(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  char byte = 0;
  CHECK(::recv(client.get(), &byte, 1, 0) == 0);
  ::kill(job, SIGKILL);
  ::waitpid(job, nullptr, 0);
}

TEST_CASE("A job that takes nobody's connection is not waited for without end", "[job]") {
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const AbstractAddress address = address_of(::geteuid(), ::getpid());
  REQUIRE(::bind(listener.get(), address.get(), address.size()) == 0);
  REQUIRE(::listen(listener.get(), 0) == 0);
  const Fd client = connect_to_job_of(::geteuid());
  CHECK(ask_job(::getpid(), "status", Millis(20)) == 1);
}
