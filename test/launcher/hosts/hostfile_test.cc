#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "launcher/hosts/host_list.h"
#include "test/support/temp_folder.h"

namespace hvd::launcher {

namespace {

std::string parsed(std::string_view text) {
  const auto hosts = parse_hostfile(text, "f");
  return hosts.is_ok() ? host_list_text(hosts.value()) : "error: " + hosts.status().message();
}

// A file in a folder of its own.
class TempFile {
 public:
  explicit TempFile(const std::string& content) { std::ofstream(path()) << content; }
  std::string path() const { return folder_ / "hosts"; }
  std::string directory() const { return folder_.path.string(); }

 private:
  test::TempFolder folder_;
};

}  // namespace

TEST_CASE("A hostfile has a host per line", "[unit][hosts]") {
  REQUIRE(parsed("a slots=2\nb slots=4\n") == "a:2,b:4");
  REQUIRE(parsed("a slots=2") == "a:2");
  REQUIRE(parsed("a\tslots = 2\r\nb  slots =4") == "a:2,b:4");
  REQUIRE(parsed("u@a slots=2 port=2222\nb port=22 slots=1") == "u@a:2222:2,b:22:1");
  REQUIRE(parsed("a:2222 slots=2\n[::1] slots=1") == "a:2222:2,[::1]:1");
  REQUIRE(parsed("a:2\nb:2222:3\n") == "a:2,b:2222:3");
  // As Open MPI and PBS write them: a line for each slot, or slots left out.
  REQUIRE(parsed("a\na\nb\nb port=22\n").starts_with("error: f:4: host 'b' was named before"));
  REQUIRE(parsed("a\na\nb port=22\n") == "a:2,b:22:1");
  REQUIRE(parsed("a slots=2 max_slots=4\nb max-slots=2\na slots=1\n") == "a:3,b:1");
}

TEST_CASE("Blank lines, comments and a byte order mark are ignored", "[unit][hosts]") {
  REQUIRE(parsed("\xef\xbb\xbf# the cluster\n\n  \t\na slots=2   # with a GPU\n#b slots=2\n\n") == "a:2");
}

TEST_CASE("A bad line is an error with file and line", "[unit][hosts]") {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"", "f: no host in it"},
      {"# nothing\n\n", "f: no host in it"},
      {"a slots=x", "f:1: 'x' is not a number of slots from 1 to 4096"},
      {"a slots=", "f:1: '' is not a number of slots from 1 to 4096"},
      {"a slots=0", "f:1: '0' is not a number of slots from 1 to 4096"},
      {"a slots=2 trailing", "f:1: unexpected 'trailing'; a line is `name slots=N [port=P]`"},
      {"a slots=2 slots=3", "f:1: slots is given twice"},
      {"a:22 slots=2 port=23", "f:1: port is given twice"},
      {"a:22:2 slots=2", "f:1: the slots are given twice: by 'a:22:2' and by what follows"},
      {"a slots 2", "f:1: unexpected 'slots'; a line is `name slots=N [port=P]`"},
      {"a slots=1\n\n# x\nu@a slots=2",
       "f:4: host 'a' was named before with another user or port; name it with the same ones"},
      {"a slots=2 max_slots=x", "f:1: 'x' is not a number of slots from 1 to 4096"},
      {"slots=2", nullptr},
      {"-oProxyCommand=x slots=1", nullptr},
      {"a;b slots=1", nullptr},
  };
  for (const auto& entry : kCases) {
    INFO(entry.text);
    const std::string result = parsed(entry.text);
    REQUIRE(result.starts_with("error: f:"));
    if (entry.error != nullptr) REQUIRE(result == std::string("error: ") + entry.error);
  }
}

TEST_CASE("Control bytes of a bad line do not reach the terminal", "[unit][hosts][security]") {
  const std::string result = parsed("a\x1b[31m slots=1");
  REQUIRE(result.find('\x1b') == std::string::npos);
  REQUIRE(result.find("\\x1b") != std::string::npos);
}

TEST_CASE("Hostfiles are bounded", "[unit][hosts]") {
  REQUIRE(parsed(std::string(kMaxHostTextBytes + 1, '\n')) == "error: f: longer than 4 MiB");
  std::string many;
  for (std::size_t i = 0; i <= kMaxHosts; ++i) many += "h" + std::to_string(i) + ":1\n";
  REQUIRE(parsed(many) == "error: f:65537: more than 65536 hosts");
}

TEST_CASE("read_hostfile names the file in its errors", "[unit][hosts]") {
  const TempFile file("a slots=2\nb slots=oops\n");
  REQUIRE(read_hostfile(file.path()).status().message() ==
          file.path() + ":2: 'oops' is not a number of slots from 1 to 4096");
  REQUIRE(read_hostfile(file.path() + ".none").status().message() ==
          "hostfile '" + file.path() + ".none': No such file or directory");
  REQUIRE(read_hostfile(file.directory()).status().message() == "hostfile '" + file.directory() + "': Is a directory");
  const TempFile pipe("");
  std::remove(pipe.path().c_str());
  REQUIRE(::mkfifo(pipe.path().c_str(), 0600) == 0);
  REQUIRE(read_host_text(pipe.path(), InputKind::kFileOnly).status().message() ==
          "hostfile '" + pipe.path() + "': is no regular file, and only such a file can be read again and again");
  const TempFile marked("\xEF\xBB\xBF# of an editor that writes a byte order mark\na slots=2\n");
  REQUIRE(read_hostfile(marked.path()).value().at(0).name == "a");
}

}  // namespace hvd::launcher
