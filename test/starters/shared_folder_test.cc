#include "starters/shared_folder.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "test/support/temp_folder.h"

namespace hvd::starters {

namespace {

namespace fs = std::filesystem;

// A folder that does not exist yet, inside one that goes with this object.
struct JobsFolder {
  std::string only_file() const {
    std::string name;
    for (const auto& entry : fs::directory_iterator(path)) name += entry.path();
    return name;
  }
  test::TempFolder outer;
  std::string path = outer / "a/jobs";
};

const Answers kNobody = [](const std::string&) { return false; };

Status announce(SharedFolder& folder, const std::string& text) {
  return folder.announce(text, Deadline::after(Millis(1000)), -1);
}

Result<std::string> find(SharedFolder& folder) { return folder.find(Deadline::after(Millis(20)), -1); }

void write(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
}

}  // namespace

TEST_CASE("What is announced in the folder is found under the job's name alone", "[unit][starters]") {
  const JobsFolder temp;
  SharedFolder rank0(temp.path, "job 1", kNobody);
  SharedFolder rank1(temp.path, "job 1", kNobody);
  SharedFolder other(temp.path, "job 2", kNobody);
  CHECK_THAT(find(rank1).status().message(),
             Catch::Contains("rank 0 has announced nothing in the folder " + temp.path));
  REQUIRE(announce(rank0, "text").is_ok());
  CHECK((fs::status(temp.path).permissions() & fs::perms::all) == fs::perms::owner_all);
  CHECK((fs::status(temp.only_file()).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(find(rank1).value() == "text");
  CHECK(find(other).status().code() == StatusCode::kTimeout);
  rank0.forget();
  CHECK(temp.only_file().empty());
}

TEST_CASE("What an earlier job left behind is replaced, and a living one is not", "[unit][starters]") {
  const JobsFolder temp;
  SharedFolder first(temp.path, "job", kNobody);
  REQUIRE(announce(first, "old").is_ok());
  SharedFolder beside(temp.path, "job", [](const std::string& text) { return text == "old"; });
  CHECK_THAT(announce(beside, "new").message(), Catch::Contains("another job with the same name"));
  SharedFolder second(temp.path, "job", kNobody);
  REQUIRE(announce(second, "new").is_ok());
  CHECK(find(first).value() == "new");
  first.forget();  // its own is gone already
  CHECK(find(second).value() == "new");
  second.forget();
  CHECK(temp.only_file().empty());  // nor is there anything temporary
}

TEST_CASE("A folder or a file that others could have to do with is refused", "[unit][starters]") {
  const JobsFolder temp;
  SharedFolder rank0(temp.path, "job", kNobody);
  REQUIRE(announce(rank0, "text").is_ok());
  const std::string file = temp.only_file();

  chmod(temp.path.c_str(), 0750);  // the group alone
  CHECK_THAT(find(rank0).status().message(), Catch::Contains("has mode 0750") && Catch::Contains("chmod 700"));
  chmod(temp.path.c_str(), 0700);
  chmod(file.c_str(), 0604);  // others alone
  CHECK_THAT(find(rank0).status().message(), Catch::Contains("has mode 0604") && Catch::Contains("chmod 600"));
  fs::rename(file, file + ".x");
  fs::create_symlink(file + ".x", file);
  CHECK_THAT(find(rank0).status().message(), Catch::Contains("symbolic link"));
  fs::remove(file);
  REQUIRE(mkfifo(file.c_str(), 0600) == 0);
  CHECK_THAT(find(rank0).status().message(), Catch::Contains("not a regular file"));
  if (geteuid() == 0) {
    fs::remove(file);
    write(file, "text");
    REQUIRE(chown(file.c_str(), 65534, 65534) == 0);
    CHECK_THAT(find(rank0).status().message(), Catch::Contains("belongs to uid 65534"));
    REQUIRE(chown(temp.path.c_str(), 65534, 65534) == 0);
    CHECK_THAT(find(rank0).status().message(), Catch::Contains("belongs to uid 65534"));
  }
  SharedFolder relative("jobs", "job", kNobody);
  CHECK_THAT(find(relative).status().message(), Catch::Contains("not an absolute path"));
  const JobsFolder linked;
  fs::create_symlink("/tmp", linked.outer / "link");
  SharedFolder through_link(linked.outer / "link", "job", kNobody);
  CHECK_FALSE(find(through_link).is_ok());
}

}  // namespace hvd::starters
