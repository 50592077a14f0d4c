#include "launcher/streams/event_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "test/support/file_size_limit.h"
#include "test/support/temp_folder.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string refusal(const std::string& path) {
  const auto file = open_events_file(path);
  return file.is_ok() ? "" : file.status().message();
}

}  // namespace

TEST_CASE("Events are added to what the file has, and are there at once", "[job]") {
  const test::TempFolder folder;
  const std::string path = folder / "events";
  std::ofstream(path) << "of before\n";
  EventFile file(open_events_file(path).value(), nullptr);
  file.write("one\n");
  CHECK(text_of(path) == "of before\none\n");
  EventFile other(open_events_file(path).value(), nullptr);
  other.write("two\n");
  file.write("three\n");
  CHECK(text_of(path) == "of before\none\ntwo\nthree\n");
}

TEST_CASE("After a line that another job has left cut, events begin with one of their own", "[job]") {
  const test::TempFolder folder;
  const std::string path = folder / "events";
  std::ofstream(path) << "whole\n{\"cut\":";
  EventFile file(open_events_file(path).value(), nullptr);
  file.write("one\n");
  file.write("two\n");
  CHECK(text_of(path) == "whole\n{\"cut\":\none\ntwo\n");
}

TEST_CASE("After a line that the disk took in part, the next one begins with a line of its own", "[job]") {
  const test::TempFolder folder;
  const std::string path = folder / "events";
  int said = 0;
  EventFile file(open_events_file(path).value(), [&said](const std::string&) { ++said; });
  {
    const test::FileSizeLimit limit(4);
    file.write("a line\n");
  }
  file.write("whole\n");
  CHECK(text_of(path) == "a li\nwhole\n");
  CHECK(said == 1);
}

TEST_CASE("A file for events that cannot be, or that another may have put there, is refused", "[job]") {
  const test::TempFolder folder;
  const std::string there = folder / "there";
  std::ofstream(there) << "a\n";
  CHECK(refusal(folder / "missing/events").starts_with("--events: cannot open the directory "));
  CHECK(refusal(folder.path.string() + "/").find("expected the name of a file") != std::string::npos);
  CHECK(refusal(folder.path.string()).starts_with("--events: cannot open "));
  std::filesystem::create_symlink(there, folder / "link");
  CHECK(refusal(folder / "link").ends_with("is a symbolic link"));
  std::filesystem::create_hard_link(there, folder / "second");
  CHECK(refusal(there).ends_with("is not a plain file with one name"));
  REQUIRE(::mkfifo(std::string(folder / "fifo").c_str(), 0600) == 0);
  CHECK(refusal(folder / "fifo").ends_with("is not a plain file with one name"));
  CHECK(text_of(folder / "second") == "a\n");
}

TEST_CASE("What a full disk does not take is said once, and each later event is tried", "[job]") {
  int said = 0;
  const auto say = [&said](const std::string& text) {
    ++said;
    CHECK(text == "cannot write to full: write: No space left on device; the job goes on, and later events are tried");
  };
  EventFile file({.fd = Fd(::open("/dev/full", O_WRONLY | O_CLOEXEC)), .name = "full"}, say);
  for (int i = 0; i < 3; ++i) file.write("line\n");
  CHECK(said == 1);
  CHECK(file.lost_lines() == 3);
}
