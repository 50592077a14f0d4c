#include "launcher/streams/output_router.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "test/support/file_size_limit.h"
#include "test/support/temp_folder.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

// Of files in it. Others may come and go: a name is looked up on a thread of its own, which a test before may have
// left.
std::ptrdiff_t open_descriptors(const std::string& directory) {
  std::ptrdiff_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code is_gone;
    count += std::filesystem::read_symlink(entry.path(), is_gone).string().starts_with(directory) ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("A rank that comes back in new slots keeps its files, and no more descriptors", "[job]") {
  const test::TempFolder folder;
  const std::string directory = folder / "out";
  MainLoop loop;
  OutputConfig look;
  look.shown_ranks = {{1, 1}};  // nothing of rank 0 in this test's own output
  OutputRouter router(loop, {.ranks = {{0, {.rank = 0}}}, .look = look}, {});
  REQUIRE(router.open_files(directory, 2).is_ok());
  const auto before = open_descriptors(directory);
  CHECK(before == 2);
  std::string expected;
  for (int slot = 0; slot <= 20; ++slot) {
    router.set_rank(slot, {.rank = 0});
    const std::string line = "slot " + std::to_string(slot) + "\n";
    router.output(slot, false, as_bytes(line));
    expected += "[0]<stdout>:" + line;
    if (slot % 2 == 0) continue;  // its host is lost: no end is told
    for (const bool is_stderr : {false, true}) router.output_end(slot, is_stderr);
  }
  CHECK(open_descriptors(directory) == before);
  std::ifstream file(directory + "/rank.0/stdout");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == expected);
}

TEST_CASE("What a full disk does not take of a rank's file is counted, and what comes later is tried", "[job]") {
  const test::TempFolder folder;
  MainLoop loop;
  OutputConfig look;
  look.shown_ranks = {{1, 1}};
  OutputRouter router(loop, {.ranks = {{0, {.rank = 0}}}, .look = look}, {});
  REQUIRE(router.open_files(folder.path, 1).is_ok());
  {
    const test::FileSizeLimit limit(16);
    for (const char* line : {"whole\n", "lost\n"}) router.output(0, false, as_bytes(line));
  }
  router.output(0, false, as_bytes("later\n"));
  std::ifstream file(folder / "rank.0/stdout");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "[0]<stdout>:whol\n[0]<stdout>:later\n");
  CHECK(router.lost_bytes() >= 2 + sizeof("\n[0]<stdout>:lost"));  // more where stderr is a file: what is said of it
}
