#include "runtime/crypto/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"

using namespace hvd;
using namespace hvd::crypto;

namespace {

struct TempFile {
  explicit TempFile(std::string_view content, mode_t mode = 0600) {
    char pattern[] = "/tmp/hvd-secret-XXXXXX";
    const Fd fd(mkostemp(pattern, 0));
    REQUIRE(fd.valid());
    path = pattern;
    REQUIRE(write_all(fd.get(), content.data(), content.size()).is_ok());
    REQUIRE(fchmod(fd.get(), mode) == 0);
  }
  ~TempFile() { unlink(path.c_str()); }
  std::string path;
};

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

}  // namespace

TEST_CASE("The secret file holds 64 hex digits and at most one newline", "[unit][crypto]") {
  const std::string hex(64, 'a');
  CHECK(to_hex(read_secret_file(TempFile(hex).path).value().bytes()) == hex);
  CHECK(to_hex(read_secret_file(TempFile(std::string(64, 'A') + "\n").path).value().bytes()) == hex);
  for (const std::string& bad : {std::string(), std::string(63, 'a'), std::string(65, 'a'), hex + "\n\n", hex + " ",
                                 std::string(63, 'a') + "g", "\n" + hex, std::string(5000, 'a')}) {
    const TempFile file(bad);
    const Status error = read_secret_file(file.path).status();
    CHECK(error.code() == StatusCode::kInvalidArgument);
    CHECK_THAT(error.message(), Catch::Contains(file.path) && Catch::Contains("64 hex digits"));
    CHECK_THAT(error.message(), !Catch::Contains("aaaa"));
  }
}

TEST_CASE("A secret file that others may reach is refused", "[unit][crypto]") {
  const std::string hex(64, 'a');
  for (const mode_t mode : {0640U, 0604U, 0660U, 0620U, 0610U}) {
    const TempFile file(hex, mode);
    CHECK_THAT(read_secret_file(file.path).status().message(),
               Catch::Contains(file.path) && Catch::Contains("has mode 06"));
  }
  const TempFile file(hex);
  const std::string link = file.path + ".link";
  REQUIRE(symlink(file.path.c_str(), link.c_str()) == 0);
  CHECK_THAT(read_secret_file(link).status().message(), Catch::Contains("symbolic link"));
  unlink(link.c_str());
  const std::string fifo = file.path + ".fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THAT(read_secret_file(fifo).status().message(), Catch::Contains("not a regular file"));
  unlink(fifo.c_str());
  CHECK_THAT(read_secret_file("/tmp").status().message(), Catch::Contains("not a regular file"));
  CHECK_THAT(read_secret_file(file.path + ".absent").status().message(), Catch::Contains("No such file"));
}

TEST_CASE("A secret file of another uid is refused", "[unit][crypto]") {
  const TempFile file(std::string(64, 'a'));
  if (chown(file.path.c_str(), 65534, static_cast<gid_t>(-1)) != 0) {
    WARN("skipped: only root can give a file away");
    return;
  }
  CHECK_THAT(read_secret_file(file.path).status().message(), Catch::Contains("belongs to uid 65534"));
}

TEST_CASE("A secret file of our own is for us alone and is removed with its object", "[unit][crypto]") {
  std::string path;
  {
    SecretFile made = SecretFile::create("/tmp").value();
    const SecretFile file = std::move(made);
    path = file.path();
    struct stat info{};
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0600);
    CHECK(to_hex(read_secret_file(path).value().bytes()) == to_hex(file.secret().bytes()));
    CHECK(to_hex(SecretFile::open(path).value().secret().bytes()) == to_hex(file.secret().bytes()));
    CHECK(exists(path));  // somebody else's is left
  }
  CHECK_FALSE(exists(path));
  CHECK_THAT(SecretFile::create("/nowhere").status().message(), Catch::Contains("/nowhere"));
}
