#include "starters/meeting.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "horovod/session.h"
#include "runtime/base/log.h"
#include "test/support/captured_log.h"
#include "test/support/temp_folder.h"

namespace hvd::starters {

namespace {

// The processes of a job of another starter as threads: each finds the job and joins it.
class Job {
 public:
  config::RuntimeConfig config(int rank, int size) const {
    config::RuntimeConfig c;
    c.rank = rank;
    c.size = size;
    config::StartedBy& started = c.started_by.emplace();
    started.program = "mpirun";
    started.job = "job";
    c.shared_dir = folder_.path;
    c.join_timeout = c.gloo_timeout = std::chrono::seconds(20);
    c.log_level = LogLevel::kFatal;
    return c;
  }
  bool is_empty() const { return std::filesystem::is_empty(folder_.path); }

  // Runs all ranks; gives why each failed, or what its `body` says. Checks belong behind it: Catch2 knows no threads.
  std::vector<std::string> run(int size, const std::function<void(config::RuntimeConfig&)>& edit,
                               const std::function<std::string(Meeting&, const config::RuntimeConfig&)>& body) {
    std::vector<std::string> said(static_cast<std::size_t>(size));
    std::vector<std::jthread> ranks;
    for (int rank = size - 1; rank >= 0; --rank) {
      ranks.emplace_back([&, rank] {
        config::RuntimeConfig c = config(rank, size);
        edit(c);
        auto meeting = Meeting::hold(c, {});
        std::string& own = said[static_cast<std::size_t>(rank)];
        own = meeting.status().message();
        if (!meeting.is_ok()) return;
        meeting.value()->apply(c);
        own = body(*meeting.value(), c);
        meeting.value()->leave();
      });
    }
    ranks.clear();
    return said;
  }

 private:
  test::TempFolder folder_;
};

void nothing(config::RuntimeConfig&) {}

// A session's size, local and cross numbers, or why there is none.
std::string join(Meeting& meeting, const config::RuntimeConfig& c) {
  const auto session = Session::start(c, {}, {}, &meeting.secret());
  if (!session.is_ok()) return session.status().message();
  meeting.everybody_is_here();
  const JobTopology& own = session.value()->topology();
  std::string text = std::to_string(own.size);
  for (const int number : {own.local_rank, own.local_size, own.cross_rank, own.cross_size}) {
    text += " " + std::to_string(number);
  }
  return text;
}

}  // namespace

TEST_CASE("Ranks of another starter find each other, twice, and leave nothing behind", "[multi][starters]") {
  Job job;
  const auto said = job.run(3, nothing, [](Meeting& meeting, const config::RuntimeConfig& c) {
    std::string numbers = join(meeting, c);
    return numbers + ", " + join(meeting, c);
  });
  CHECK(said == std::vector<std::string>{"3 0 3 0 1, 3 0 3 0 1", "3 1 3 0 1, 3 1 3 0 1", "3 2 3 0 1, 3 2 3 0 1"});
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
  const auto said = job.run(4, in_containers, [](Meeting& meeting, const config::RuntimeConfig& c) {
    return c.is_on_several_hosts ? join(meeting, c) : "on one host";
  });
  CHECK(said == std::vector<std::string>{"4 0 2 0 2", "4 1 2 0 2", "4 0 2 1 2", "4 1 2 1 2"});
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
  const test::CapturedLog log;
  configure_log({});
  const auto misled = Meeting::hold(hurried, {}, Millis(20));
  CHECK(log.count("rank 1 of 2, which mpirun started, still waits for rank 0 by the folder " + hurried.shared_dir) ==
        1);
  CHECK(log.count("HOROVOD_IGNORE_STARTER=1") == 1);
  CHECK_THAT(misled.status().message(), Catch::Contains("rank 0 does not answer where the folder"));
  CHECK(job.run(2, nothing, join) == std::vector<std::string>{"2 0 2 0 1", "2 1 2 0 1"});
}

TEST_CASE("Without a way to find each other, it is said what is missing", "[unit][starters]") {
  Job job;
  config::RuntimeConfig c = job.config(1, 2);
  c.started_by->job.clear();
  CHECK_THAT(Meeting::hold(c, {}).status().message(), Catch::Contains("set HOROVOD_JOB_ID"));
  c.started_by->pmi_fd = 123456;
  CHECK_THAT(Meeting::hold(c, {}).status().message(), Catch::Contains("PMI_FD=123456 is no socket here"));
  c.started_by->job = "job";
  c.shared_dir.clear();
  CHECK_THAT(Meeting::hold(c, {}).status().message(), Catch::Contains("HOROVOD_SHARED_DIR"));
  c = job.config(0, 2);
  c.iface = "none0";
  CHECK_THAT(Meeting::hold(c, {}).status().message(), Catch::Contains("HOROVOD_GLOO_IFACE=none0"));
}

TEST_CASE("Jobs of one name, each on a host of its own, are told apart", "[unit][starters]") {
  config::RuntimeConfig c = Job().config(0, 2);
  const transport::HostIdentity here{"h", "boot", "net:[1]", "pid:[1]"};
  const transport::HostIdentity other_host{"h", "boot2", "net:[1]", "pid:[1]"};
  const transport::HostIdentity other_network{"h", "boot", "net:[2]", "pid:[1]"};
  CHECK(job_name(c, here) == job_name(c, other_host));
  c.has_starters_local_numbers = true;
  c.local_size = 2;
  CHECK(job_name(c, here) != job_name(c, other_host));
  CHECK(job_name(c, here) != job_name(c, other_network));
  CHECK(job_name(c, here) == job_name(c, {"h", "boot", "net:[1]", "pid:[2]"}));
  c.size = 4;
  CHECK(job_name(c, here) == job_name(c, other_host));
}

TEST_CASE("A rank that waits for its job can be interrupted, and learns of rank 0's end", "[multi][starters]") {
  Job job;
  std::stop_source user;
  Status interrupted;
  std::jthread rank([&] { interrupted = Meeting::hold(job.config(1, 2), user.get_token()).status(); });
  user.request_stop();
  rank.join();
  CHECK(interrupted.code() == StatusCode::kAborted);

  // Rank 0 ends after the others have found it and before all have joined.
  auto rank0 = std::move(Meeting::hold(job.config(0, 3), {})).value();
  config::RuntimeConfig c = job.config(1, 3);
  const auto rank1 = std::move(Meeting::hold(c, {})).value();
  rank1->apply(c);
  Status ended;
  std::jthread waits([&] { ended = Session::start(c, {}, {}, &rank1->secret()).status(); });
  rank0.reset();
  waits.join();
  CHECK(ended.code() == StatusCode::kPeerLost);  // within seconds, not at the deadline
  CHECK_THAT(ended.message(), Catch::Contains("the server has ended"));
}

}  // namespace hvd::starters
