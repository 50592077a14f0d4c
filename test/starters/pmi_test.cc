#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/fd.h"
#include "starters/pmi_channel.h"
#include "starters/pmi_line.h"

namespace hvd::starters {

namespace {

bool speaks_blocks(const std::vector<std::string>& heard) {
  return !heard.empty() && heard.front().starts_with("cmd=init pmi_version=2");
}

// A process manager for one process: answers each request with what `answer` makes of its line.
class Manager {
 public:
  explicit Manager(const std::function<std::string(const std::string&)>& answer) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    process_ = Fd(ends[0]);
    thread_ = std::jthread([this, answer, own = ends[1]] {
      const Fd fd(own);
      std::string line;
      std::size_t block = 0;  // of PMI-2, which speaks in such from its greeting on
      for (char c = 0; read(own, &c, 1) == 1;) {
        line += c;
        if (block == 0 && speaks_blocks(heard_) && line.size() == kPmiBlockHead) {
          block = pmi_block_size(line).value();
          line.clear();
        }
        if (block > 0 ? line.size() < block : c != '\n') continue;
        if (block == 0) line.pop_back();
        block = 0;
        heard_.push_back(line);
        const std::string text = answer(line);
        line.clear();
        if (text.empty() || send(own, text.data(), text.size(), MSG_NOSIGNAL) < 0) return;
      }
    });
  }
  int fd() const { return process_.get(); }
  // Every request, once the process has closed its end.
  std::vector<std::string> heard() {
    process_.reset();
    thread_.join();
    return heard_;
  }

 private:
  std::vector<std::string> heard_;
  std::jthread thread_;
  Fd process_;  // closed before the thread is joined
};

// As MPICH 4.0.2's hydra answers, but for what `changes` has for a command.
std::string hydra(const std::string& line, const std::map<std::string, std::string>& changes = {}) {
  const std::string command = line.substr(4, line.find(' ') - 4);
  if (const auto change = changes.find(command); change != changes.end()) return change->second;
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
  if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1_0_vm\n";
  if (command == "put") return "cmd=put_result rc=0 msg=success\n";
  if (command == "barrier_in") return "cmd=barrier_out\n";
  if (command == "get") return "cmd=get_result rc=0 msg=success value=hvd1.00\n";
  return "cmd=finalize_ack\n";
}

// As Slurm 22.05's does, with --mpi=pmi2.
std::string slurm(const std::string& request, const std::map<std::string, std::string>& changes = {}) {
  const std::string command = request.substr(4, request.find_first_of(" ;") - 4);
  if (const auto change = changes.find(command); change != changes.end()) return change->second;
  if (command == "init") return "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
  if (command == "fullinit") return "55    cmd=fullinit-response;rc=0;pmi-version=2;rank=1;size=2;";
  if (command == "kvs-get") return "57    cmd=kvs-get-response;rc=0;found=TRUE;value=hvd1.00;;11;;;";
  return pmi_block({{"cmd", command + "-response"}, {"rc", "0"}});
}

Deadline soon() { return Deadline::after(Millis(5000)); }

// That an attempt, which gets a deadline, fails and says this. It has a longer one where a busy machine used it up
// before it came to what it is about.
void fails(const std::function<Status(const Deadline&)>& attempt, const std::string& channel, const std::string& text) {
  Status status;
  for (Millis limit(200); limit < Millis(30000) && status.message().find(text) == std::string::npos; limit *= 4) {
    status = attempt(Deadline::after(limit));
  }
  REQUIRE_FALSE(status.is_ok());
  CHECK_THAT(status.message(), Catch::Contains(channel) && Catch::Contains(text));
}

}  // namespace

TEST_CASE("A line of PMI is words, and what follows a word without a key", "[unit][starters]") {
  const PmiLine line = PmiLine::parse("cmd=get_result rc=-1 msg=no such key  value=").value();
  CHECK(line["cmd"] == "get_result");
  CHECK(line["msg"] == "no such key");
  CHECK(line["value"].empty());
  CHECK(line["absent"].empty());
  for (const char* const text : {"word cmd=x", "=x", "cmd=a cmd=b", "cmd=\x01", "cmd=a\nrc=0"}) {
    CHECK_FALSE(PmiLine::parse(text).is_ok());
  }
  CHECK_FALSE(PmiLine::parse("cmd=" + std::string(kMaxPmiLine, 'a')).is_ok());
  CHECK(pmi_request({{"cmd", "get"}, {"key", "k"}}) == "cmd=get key=k\n");
}

TEST_CASE("Rank 0 puts before the barrier and the others get behind it", "[multi][starters]") {
  Manager first([](const std::string& line) { return hydra(line); });
  PmiChannel rank0(first.fd());
  REQUIRE(rank0.announce("hvd1.00", soon(), -1).is_ok());
  rank0.leave();
  rank0.leave();  // says goodbye once
  CHECK(first.heard() == std::vector<std::string>{"cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_my_kvsname",
                                                  "cmd=put kvsname=kvs_1_0_vm key=horovod value=hvd1.00",
                                                  "cmd=barrier_in", "cmd=finalize"});
  Manager second([](const std::string& line) { return hydra(line); });
  PmiChannel rank1(second.fd());
  CHECK(rank1.find(soon(), -1).value() == "hvd1.00");
  CHECK(rank1.find(soon(), -1).value() == "hvd1.00");  // without another barrier
  rank1.forget();
  CHECK(rank1.find(soon(), -1).value() == "hvd1.00");  // nothing of it was kept
  CHECK(second.heard().size() == 8);
}

TEST_CASE("A block of PMI-2 has its size before it, and semicolons twice in values", "[unit][starters]") {
  CHECK(pmi_block({{"cmd", "kvs-get"}, {"key", "k"}}) == "18    cmd=kvs-get;key=k;");
  const PmiLine block = PmiLine::parse_block("cmd=kvs-get-response;value=a;;b c=d;rc=0;").value();
  CHECK(block["value"] == "a;b c=d");
  CHECK(block["rc"] == "0");
  for (const char* const text : {"cmd=a", "a;", "=a;", "cmd=a;cmd=b;", "cmd=\x01;", ";"}) {
    INFO(text);
    CHECK_FALSE(PmiLine::parse_block(text).is_ok());
  }
  CHECK(pmi_block_size("   114").value() == 114);
  for (const char* const text : {"      ", "1 4   ", "-1    ", "4097  ", "999999", "abcdef"}) {
    INFO(text);
    CHECK_FALSE(pmi_block_size(text).is_ok());
  }
}

TEST_CASE("PMI-2 is greeted once, in a line, and then asked in blocks", "[multi][starters]") {
  Manager manager([](const std::string& request) { return slurm(request); });
  Pmi2Channel rank1(manager.fd(), 1, "7.0");
  CHECK(rank1.find(soon(), -1).value() == "hvd1.00;11;");
  rank1.forget();
  CHECK(rank1.find(soon(), -1).is_ok());
  rank1.leave();
  rank1.leave();
  const std::vector<std::string> get = {"cmd=kvs-fence;", "cmd=kvs-get;jobid=7.0;srcid=-1;key=horovod;"};
  CHECK(manager.heard() == std::vector<std::string>{"cmd=init pmi_version=2 pmi_subversion=0",
                                                    "cmd=fullinit;pmijobid=7.0;pmirank=1;threaded=FALSE;", get[0],
                                                    get[1], get[0], get[1], "cmd=finalize;"});
  Manager other([](const std::string& request) { return slurm(request); });
  CHECK(Pmi2Channel(other.fd(), 1, "7.0").announce("hvd1.00", soon(), -1).is_ok());
  CHECK(other.heard()[2] == "cmd=kvs-put;key=horovod;value=hvd1.00;");
}

TEST_CASE("A PMI-2 that answers wrong, late or not at all is an error that says so", "[multi][starters]") {
  const auto fails = [](const std::map<std::string, std::string>& changes, const std::string& text) {
    const auto find = [&](const Deadline& deadline) {
      Manager manager([&](const std::string& request) { return slurm(request, changes); });
      return Pmi2Channel(manager.fd(), 1, "7.0").find(deadline, -1).status();
    };
    starters::fails(find, "PMI-2", text);
  };
  fails({{"init", "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n"}}, "it speaks version 1, expected 2");
  fails({{"fullinit", "34    cmd=fullinit-response;rc=0;rank=0;"}}, "for rank 0, expected 1");
  fails({{"fullinit", "47    cmd=fullinit-response;rc=-1;errmsg=no such job;"}}, "rc -1, no such job");
  fails({{"kvs-get", "38    cmd=kvs-get-response;rc=0;found=FALSE;"}}, "rank 0 has put nothing there");
  fails({{"kvs-fence", "no size"}}, "begins with no size");
  fails({{"kvs-fence", "28    cmd="}}, "not every process of the job has come");
  fails({{"kvs-get", ""}}, "connection closed");
}

TEST_CASE("A process manager that answers wrong, late or not at all is an error that says so", "[multi][starters]") {
  const auto fails = [](const std::map<std::string, std::string>& changes, const std::string& text) {
    const auto find = [&](const Deadline& deadline) {
      Manager manager([&](const std::string& line) { return hydra(line, changes); });
      return PmiChannel(manager.fd()).find(deadline, -1).status();
    };
    starters::fails(find, "PMI_FD", text);
  };
  fails({{"init", "cmd=response_to_init rc=-1 msg=version\n"}}, "rc -1, version");
  fails({{"get_my_kvsname", "cmd=my_kvsname\n"}}, "it has no name");
  fails({{"get", "cmd=get_result rc=-1 msg=key_horovod_not_found value=unknown\n"}}, "key_horovod_not_found");
  fails({{"init", "cmd=response_to_init rc=0\ncmd=x\n"}}, "more than one answer");
  fails({{"init", ""}}, "connection closed");
  fails({{"barrier_in", "cmd=barrier"}}, "not every process of the job has come");
  fails({{"init", std::string(2 * kMaxPmiLine, 'a') + "\n"}}, "init");
}

}  // namespace hvd::starters
