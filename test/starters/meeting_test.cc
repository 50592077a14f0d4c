#include "starters/meeting.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "horovod/session.h"

namespace hvd::starters {

namespace {

// The processes of a job of another starter as threads: each finds the job and joins it.
class Job {
 public:
  Job() {
    std::string name = "/tmp/hvd-meeting-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Job() { std::filesystem::remove_all(folder_); }

  config::RuntimeConfig config(int rank, int size) const {
    config::RuntimeConfig c;
    c.rank = rank;
    c.size = size;
    config::StartedBy& started = c.started_by.emplace();
    started.program = "mpirun";
    started.job = "job";
    c.shared_dir = folder_;
    c.join_timeout = c.gloo_timeout = std::chrono::seconds(20);
    c.log_level = LogLevel::kFatal;
    return c;
  }
  bool is_empty() const { return std::filesystem::is_empty(folder_); }

  // Runs all ranks; gives why each failed, "" when it did not.
  std::vector<std::string> run(int size, const std::function<void(config::RuntimeConfig&)>& edit,
                               const std::function<void(Meeting&, const config::RuntimeConfig&)>& body) {
    std::vector<std::string> errors(static_cast<std::size_t>(size));
    std::vector<std::jthread> ranks;
    for (int rank = size - 1; rank >= 0; --rank) {
      ranks.emplace_back([&, rank] {
        config::RuntimeConfig c = config(rank, size);
        edit(c);
        auto meeting = Meeting::hold(c, {});
        errors[static_cast<std::size_t>(rank)] = meeting.status().message();
        if (!meeting.is_ok()) return;
        meeting.value()->apply(c);
        body(*meeting.value(), c);
        meeting.value()->leave();
      });
    }
    ranks.clear();
    return errors;
  }

 private:
  std::string folder_;
};

void nothing(config::RuntimeConfig&) {}

}  // namespace

TEST_CASE("Ranks of another starter find each other, twice, and leave nothing behind", "[multi][starters]") {
  Job job;
  const auto errors = job.run(3, nothing, [](Meeting& meeting, const config::RuntimeConfig& c) {
    for (int round = 0; round < 2; ++round) {
      auto session = Session::start(c, {}, {}, &meeting.secret());
      CHECK(session.status().message().empty());
      if (!session.is_ok()) return;
      meeting.everybody_is_here();
      CHECK(session.value()->topology().size == 3);
      CHECK(session.value()->topology().local_rank == c.rank);
    }
  });
  CHECK(errors == std::vector<std::string>(3));
  CHECK(job.is_empty());
}

TEST_CASE("Local numbers of containers are the starter's", "[multi][starters]") {
  Job job;
  const auto in_containers = [](config::RuntimeConfig& c) {
    c.has_starters_local_numbers = true;  // two hosts of two ranks, all of which look like hosts of their own to us
    c.local_rank = c.rank % 2;
    c.local_size = 2;
    c.hostname = "container" + std::to_string(c.rank);
  };
  const auto errors = job.run(4, in_containers, [](Meeting& meeting, const config::RuntimeConfig& c) {
    CHECK(c.is_on_several_hosts);
    const auto session = Session::start(c, {}, {}, &meeting.secret());
    CHECK(session.status().message().empty());
    if (!session.is_ok()) return;
    const JobTopology& own = session.value()->topology();
    CHECK(own.local_rank == c.rank % 2);
    CHECK(own.local_size == 2);
    CHECK(own.cross_rank == c.rank / 2);
    CHECK(own.cross_size == 2);
  });
  CHECK(errors == std::vector<std::string>(4));
}

TEST_CASE("What a dead job announced is not believed, and a living one is not disturbed", "[multi][starters]") {
  Job job;
  {
    // Of a rank 0 that was killed while it waited: its announcement stays, its server does not.
    auto killed = Meeting::hold(job.config(0, 2), {});
    REQUIRE(killed.is_ok());
    std::filesystem::path file;
    for (const auto& entry : std::filesystem::directory_iterator(job.config(0, 2).shared_dir)) file = entry.path();
    std::filesystem::copy_file(file, file.string() + ".kept");

    const auto beside = Meeting::hold(job.config(0, 2), {});
    CHECK_THAT(beside.status().message(), Catch::Contains("rank 0 of another job with the same name"));

    std::move(killed).value().reset();
    std::filesystem::rename(file.string() + ".kept", file);
  }
  config::RuntimeConfig hurried = job.config(1, 2);
  hurried.join_timeout = std::chrono::seconds(1);
  const auto misled = Meeting::hold(hurried, {});
  CHECK_THAT(misled.status().message(), Catch::Contains("rank 0 does not answer where the folder"));
  const auto errors = job.run(2, nothing, [](Meeting& meeting, const config::RuntimeConfig& c) {
    CHECK(Session::start(c, {}, {}, &meeting.secret()).status().message().empty());
  });
  CHECK(errors == std::vector<std::string>(2));
}

TEST_CASE("Without a way to find each other, it is said what is missing", "[unit][starters]") {
  Job job;
  config::RuntimeConfig c = job.config(1, 2);
  c.started_by->job.clear();
  CHECK_THAT(Meeting::hold(c, {}).status().message(), Catch::Contains("set HOROVOD_JOB_ID"));
  c.started_by->pmi_fd = 0;
  CHECK_THAT(Meeting::hold(c, {}).status().message(), Catch::Contains("PMI_FD=0 is no socket here"));
  c.started_by->job = "job";
  c.shared_dir.clear();
  CHECK_THAT(Meeting::hold(c, {}).status().message(), Catch::Contains("HOROVOD_SHARED_DIR"));
  c = job.config(0, 2);
  c.iface = "none0";
  CHECK_THAT(Meeting::hold(c, {}).status().message(), Catch::Contains("HOROVOD_GLOO_IFACE=none0"));
}

TEST_CASE("A rank that waits for its job can be interrupted, and learns of rank 0's end", "[multi][starters]") {
  Job job;
  std::stop_source user;
  std::jthread rank(
      [&] { CHECK(Meeting::hold(job.config(1, 2), user.get_token()).status().code() == StatusCode::kAborted); });
  user.request_stop();
  rank.join();

  // Rank 0 ends after the others have found it and before all have joined.
  auto rank0 = std::move(Meeting::hold(job.config(0, 3), {})).value();
  config::RuntimeConfig c = job.config(1, 3);
  const auto rank1 = std::move(Meeting::hold(c, {})).value();
  rank1->apply(c);
  std::jthread waits([&] {
    const Status status = Session::start(c, {}, {}, &rank1->secret()).status();
    CHECK(status.code() == StatusCode::kPeerLost);  // within seconds, not at the deadline
    CHECK_THAT(status.message(), Catch::Contains("the server has ended"));
  });
  rank0.reset();
}

}  // namespace hvd::starters
