#include "runtime/base/output_file.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "test/support/temp_folder.h"

using namespace hvd;

namespace {

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string refusal(const std::string& path) { return open_emptied(path).status().message(); }

}  // namespace

TEST_CASE("What another user may have planted is neither followed nor emptied", "[unit][base]") {
  const test::TempFolder folder;
  const std::string there = folder / "there";
  std::ofstream(there) << "keep";
  std::filesystem::create_symlink(there, folder / "link");
  CHECK(refusal(folder / "link") == folder / "link" + " is a symbolic link");
  std::filesystem::create_symlink(folder / "new", folder / "dangling");
  CHECK(refusal(folder / "dangling").ends_with(" is a symbolic link"));
  CHECK_FALSE(std::filesystem::exists(folder / "new"));
  std::filesystem::create_hard_link(there, folder / "second");
  CHECK(refusal(folder / "second").ends_with(" is not a plain file with one name"));
  CHECK(text_of(there) == "keep");
  std::filesystem::remove(folder / "second");
  if (::geteuid() == 0) {
    REQUIRE(::chown(there.c_str(), 12345, -1) == 0);
    CHECK(refusal(there) == there + " belongs to user 12345, not to you (0)");
    CHECK(text_of(there) == "keep");
  }
  CHECK(refusal(folder / "missing/file") == "cannot open " + folder / "missing/file" + ": No such file or directory");
}

TEST_CASE("What was made here is ours, whomever the mount gives it to", "[unit][base]") {
  if (::geteuid() != 0) return;
  const test::TempFolder folder;
  REQUIRE(::chmod((folder / "").c_str(), 0777) == 0);
  const Fd there(::open((folder / "").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ::setfsuid(65534);  // new files belong to it, as where a server squashes users
  const Result<Fd> made = open_emptied(folder / "made");
  const Result<Fd> beside = open_own_file(there, "beside", "beside", O_WRONLY);
  ::setfsuid(0);
  CHECK(made.is_ok());
  CHECK(beside.is_ok());
  CHECK(refusal(folder / "made").ends_with("made belongs to user 65534, not to you (0)"));
}

TEST_CASE("A user namespace that does not know root shows what is his as nobody's", "[unit][base]") {
  CHECK(is_root(0));
  CHECK_FALSE(is_root(::geteuid() == 0 ? 65534 : ::geteuid()));
}

TEST_CASE("The user's own file is emptied, devices and pipes are opened", "[unit][base]") {
  const test::TempFolder folder;
  const std::string file = folder / "file";
  std::ofstream(file) << "old";
  CHECK(open_emptied(file).is_ok());
  CHECK(text_of(file).empty());
  CHECK(open_emptied("/dev/null").is_ok());
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(refusal(pipe) == "cannot open " + pipe + ": No such device or address");  // nobody reads
  const Fd reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  CHECK(open_emptied(pipe).is_ok());
  // A shell's >(command): a link to a pipe.
  const Result<Fd> named = open_emptied("/dev/fd/" + std::to_string(reader.get()));
  CHECK(named.is_ok());
}
