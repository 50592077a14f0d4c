#include <algorithm>
#include <catch2/catch.hpp>

#include "launcher/ssh/ssh_config_query.h"
#include "launcher/ssh/ssh_login.h"

using namespace hvd::launcher;

namespace {

bool has(const std::vector<std::string>& argv, const std::string& word) {
  return std::find(argv.begin(), argv.end(), word) != argv.end();
}

std::string explained(int code, std::vector<std::string> lines) {
  return explain({.host = "b",
                  .program = "ssh",
                  .agent_path = "/opt/horovodrun",
                  .status = {.code = code, .signal = 0},
                  .stderr_lines = std::move(lines)});
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("ssh_argv ends with the host behind -- and one word of command", "[unit][ssh]") {
  const auto argv = ssh_argv({}, {.name = "node7", .user = "", .port = 0, .slots = 2}, "exec /x --agent c");
  REQUIRE(argv.size() > 4);
  CHECK(argv[0] == "ssh");
  CHECK(argv[argv.size() - 3] == "--");
  CHECK(argv[argv.size() - 2] == "node7");
  CHECK(argv.back() == "exec /x --agent c");
  CHECK(has(argv, "-T"));
  CHECK(has(argv, "-oBatchMode=yes"));
  CHECK(has(argv, "-oForwardAgent=no"));
  CHECK(has(argv, "-oClearAllForwardings=yes"));
  CHECK(has(argv, "-oStrictHostKeyChecking=accept-new"));
  CHECK(has(argv, "-oConnectTimeout=30"));
  CHECK_FALSE(has(argv, "-p"));
  CHECK_FALSE(has(argv, "-i"));
  CHECK_FALSE(has(argv, "-l"));
}

TEST_CASE("ssh_argv carries port, identity, user, program and host key policy", "[unit][ssh]") {
  LaunchConfig config;
  config.ssh_port = 2222;
  config.ssh_identity_file = "/keys/id";
  config.ssh_program = "/opt/ssh";
  config.ssh_host_keys = SshHostKeys::kStrict;
  config.start_timeout = std::chrono::seconds(7);
  auto argv = ssh_argv(config, {.name = "h", .user = "me", .port = 0, .slots = 1}, "x");
  CHECK(argv[0] == "/opt/ssh");
  const auto value_of = [&](const std::string& flag) { return *(std::find(argv.begin(), argv.end(), flag) + 1); };
  CHECK(value_of("-p") == "2222");
  CHECK(value_of("-i") == "/keys/id");
  CHECK(value_of("-l") == "me");
  CHECK(has(argv, "-oStrictHostKeyChecking=yes"));
  CHECK(has(argv, "-oConnectTimeout=7"));
  SECTION("a port of the host wins over --ssh-port") {
    argv = ssh_argv(config, {.name = "h", .user = "", .port = 99, .slots = 1}, "x");
    CHECK(value_of("-p") == "99");
  }
  SECTION("off") {
    config.ssh_host_keys = SshHostKeys::kOff;
    CHECK(has(ssh_argv(config, {.name = "h", .user = "", .port = 0, .slots = 1}, "x"), "-oStrictHostKeyChecking=no"));
  }
}

TEST_CASE("remote_argv gives ssh one quoted command, and another program the words as they are", "[unit][ssh]") {
  const std::vector<std::string> words = {"/my env/horovodrun", "--agent", "c0ffee"};
  const HostSpec host = {.name = "n7", .user = "", .port = 0, .slots = 1};
  LaunchConfig config;
  config.ssh_args = {"-o", "ConnectionAttempts=10"};
  const auto by_ssh = remote_argv(config, host, words);
  CHECK(
      std::vector(by_ssh.end() - 5, by_ssh.end()) ==
      std::vector<std::string>{"-o", "ConnectionAttempts=10", "--", "n7", "exec '/my env/horovodrun' --agent c0ffee"});
  config.rsh = {"kubectl", "exec", "-i", "pod/{host}", "-c", "{host}-{host}", "--"};
  CHECK(remote_argv(config, host, words) == std::vector<std::string>{"kubectl", "exec", "-i", "pod/n7", "-c", "n7-n7",
                                                                     "--", "/my env/horovodrun", "--agent", "c0ffee"});
}

TEST_CASE("explain does not read another program's words as ssh's", "[unit][ssh]") {
  const SshFailure failure{.host = "b",
                           .program = "/etc/kubexec.sh",
                           .is_ssh = false,
                           .agent_path = "/opt/horovodrun",
                           .status = {.code = 255, .signal = 0},
                           .stderr_lines = {"Connection refused"}};
  CHECK(explain(failure) ==
        "host b: /etc/kubexec.sh exited with code 255 before the agent answered (/etc/kubexec.sh said: Connection "
        "refused)");
  CHECK_FALSE(is_transient(failure));
}

TEST_CASE("explain says what an ssh failure means", "[unit][ssh]") {
  CHECK(contains(explained(255, {"ssh: Could not resolve hostname b: Name or service not known"}),
                 "host b: unknown host"));
  CHECK(contains(explained(255, {"ssh: connect to host b port 22: Connection refused"}), "the connection was refused"));
  CHECK(contains(explained(255, {"ssh: connect to host b port 22: Connection timed out"}), "no answer"));
  CHECK(contains(explained(255, {"me@b: Permission denied (publickey)."}), "refused the login"));
  CHECK(contains(explained(255, {"kex_exchange_identification: Connection closed by remote host"}), "MaxStartups"));
  CHECK(contains(explained(255, {"No ED25519 host key is known for b", "Host key verification failed."}),
                 "--ssh-host-keys=strict"));
  CHECK(contains(explained(127, {"sh: 1: exec: /opt/horovodrun: not found"}), "there is no /opt/horovodrun"));
  CHECK(contains(explained(126, {"Permission denied"}), "/opt/horovodrun cannot be executed"));
  CHECK(contains(explained(1, {}), "ssh exited with code 1 before the agent answered"));
}

TEST_CASE("explain tells a changed host key from an unknown one", "[unit][ssh]") {
  const std::string text = explained(255, {"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @",
                                           "Offending key in x:1", "Host key verification failed."});
  CHECK(contains(text, "its host key has changed"));
  CHECK(contains(text,
                 "; ssh said:\n    @ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n    Offending key in x:1\n"));
}

TEST_CASE("is_transient knows a crowded sshd from a closed one", "[unit][ssh]") {
  const auto failure = [](std::string line) {
    return SshFailure{.host = "b",
                      .program = "ssh",
                      .agent_path = "x",
                      .status = {.code = 255, .signal = 0},
                      .stderr_lines = {std::move(line)}};
  };
  CHECK(is_transient(failure("kex_exchange_identification: read: Connection reset by peer")));
  CHECK_FALSE(is_transient(failure("ssh: connect to host b port 22: Connection refused")));
  CHECK_FALSE(is_transient(failure("Host key verification failed.")));
  SshFailure of_agent = failure("Connection reset by peer");  // what it prints: ssh itself ends with 255
  of_agent.status.code = 1;
  CHECK_FALSE(is_transient(of_agent));
}

TEST_CASE("explain quotes the line that says what is wrong, not what start-up files print after it", "[unit][ssh]") {
  std::vector<std::string> lines(20, "welcome!");
  lines.front() = "me@b: Permission denied (publickey).";
  CHECK(contains(explained(255, lines), "(ssh said: me@b: Permission denied (publickey).)"));
}

TEST_CASE("explain passes on what ssh said", "[unit][ssh]") {
  CHECK(contains(explained(255, {"in ssh"}), "(ssh said: in ssh)"));
  CHECK(contains(explained(255, {"something new", "in ssh"}), "ssh said:\n    something new\n    in ssh"));
}

TEST_CASE("hostname_in finds what ssh -G makes of an alias", "[unit][ssh]") {
  CHECK(hostname_in("user root\nhostname 10.0.0.7\nport 22\n") == "10.0.0.7");
  CHECK(hostname_in("canonicalizehostname false\nhostname gpu1") == "gpu1");
  CHECK(hostname_in("user root\n").empty());
  CHECK(hostname_in("").empty());
}
