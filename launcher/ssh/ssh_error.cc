#include "launcher/ssh/ssh_login.h"

#include <string_view>

namespace hvd::launcher {
namespace {

// What OpenSSH prints, and what it means for the user. The first row that matches any line counts.
struct Row {
  std::string_view text;
  std::string_view meaning;
};
constexpr Row kRows[] = {
    {"REMOTE HOST IDENTIFICATION HAS CHANGED",
     "its host key has changed: either the host was reinstalled (then remove its line from known_hosts), or somebody "
     "is "
     "in between"},
    {"Host key verification failed",
     "its host key is not known and --ssh-host-keys=strict does not accept new ones: connect once by hand, or add it "
     "to "
     "known_hosts"},
    {"Could not resolve hostname", "unknown host: the name does not resolve"},
    {"Permission denied", "ssh refused the login: it must work without a password (check ssh keys, user and -i)"},
    {"Too many authentication failures", "ssh refused the login: too many keys were offered (name one with -i)"},
    {"Connection refused", "the connection was refused: is sshd running there, on that port (-p)?"},
    {"Connection timed out", "no answer: the connection timed out"},
    {"Operation timed out", "no answer: the connection timed out"},
    {"No route to host", "no route to the host"},
    {"Network is unreachable", "the network is unreachable"},
    {"Timeout, server", "the connection was lost: nothing heard for 15 s"},
    {"Connection reset by", "sshd closed the connection before the login (too many at once? see MaxStartups)"},
    {"kex_exchange_identification", "sshd closed the connection before the login (too many at once? see MaxStartups)"},
    {"Connection closed by", "sshd closed the connection"},
    {"Bad configuration option", "the ssh client does not understand an option: is it OpenSSH?"},
};

// What went wrong in words, and the line of ssh's that says so. Shell start-up files print to the same stream, so it
// need not be the last.
struct Finding {
  std::string meaning;
  std::string line;
};

Finding finding_of(const SshFailure& failure) {
  for (const Row& row : kRows) {
    for (const std::string& line : failure.stderr_lines) {
      if (line.find(row.text) != std::string::npos) return {std::string(row.meaning), line};
    }
  }
  return {};
}

// All that ssh said when it is short: which file has the offending key, say, stands in another line than what is wrong.
constexpr std::size_t kMaxQuoted = 15;

std::string quoted(const SshFailure& failure, const std::string& line) {
  const std::string said = (failure.is_ssh ? "ssh" : failure.program) + " said:";
  std::vector<std::string> lines = failure.stderr_lines;
  std::erase_if(lines, [](const std::string& one) { return one.find("Permanently added") != std::string::npos; });
  if (line.empty() || lines.size() <= 1 || lines.size() > kMaxQuoted) {
    return line.empty() ? "" : " (" + said + " " + line + ")";
  }
  std::string text = "; " + said;
  for (const std::string& one : lines) text += "\n    " + one;
  return text;
}

}  // namespace

bool is_transient(const SshFailure& failure) {
  if (!failure.is_ssh || failure.status.code != 255) return false;
  for (const std::string& line : failure.stderr_lines) {
    for (const std::string_view text : {"kex_exchange_identification", "Connection reset by", "Exceeded MaxStartups"}) {
      if (line.find(text) != std::string::npos) return true;
    }
  }
  return false;
}

std::string explain(const SshFailure& failure) {
  const std::string where = "host " + failure.host + ": ";
  const std::string last = quoted(failure, failure.stderr_lines.empty() ? "" : failure.stderr_lines.back());
  if (failure.status.signal == 0 && failure.status.code == 127) {
    return where + "there is no " + failure.agent_path +
           "; install the same version there, or name it with --agent-path" + last;
  }
  if (failure.status.signal == 0 && failure.status.code == 126) {
    return where + failure.agent_path + " cannot be executed there" + last;
  }
  if (failure.is_ssh && failure.status.signal == 0 && failure.status.code == 255) {
    const Finding found = finding_of(failure);
    if (!found.meaning.empty()) return where + found.meaning + quoted(failure, found.line);
  }
  return where + failure.program + " " + describe(failure.status) + " before the agent answered" + last;
}

}  // namespace hvd::launcher
