#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "test/support/temp_folder.h"

// Which NCCL a process finds, by the name that it has for every program: libnccl.so.2.
namespace {

namespace fs = std::filesystem;

// A program of which an NCCL lies beside, as the package nvidia-nccl beside this one, and two elsewhere.
class Places {
 public:
  Places() : root_(fs::canonical(folder_.path)) {
    for (const fs::path& file : {beside(), on_path(), framework(), chosen()}) {
      fs::create_directories(file.parent_path());
      fs::copy_file(HVD_FAKE_NCCL_BY_NAME, file);
    }
    fs::create_directories(program().parent_path());
    fs::copy_file(HVD_NCCL_SEARCH, program());
  }

  fs::path program() const { return root_ / "site-packages/horovod/nccl_search"; }
  fs::path beside() const { return root_ / "site-packages/nvidia/nccl/lib/libnccl.so.2"; }
  fs::path on_path() const { return root_ / "path/libnccl.so.2"; }
  fs::path framework() const { return root_ / "framework/libnccl.so.2"; }
  fs::path chosen() const { return root_ / "chosen/any_name.so"; }
  // The file that the program names.
  fs::path find(const std::string& wanted, const std::string& loaded) const {
    const std::string command = "LD_LIBRARY_PATH='" + on_path().parent_path().string() + "' '" + program().string() +
                                "' '" + wanted + "'" + (loaded.empty() ? "" : " '" + loaded + "'");
    std::FILE* const output = ::popen(command.c_str(), "r");
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), output));
    REQUIRE(::pclose(output) == 0);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return fs::exists(text) ? fs::canonical(text) : fs::path(text);
  }

 private:
  const hvd::test::TempFolder folder_;
  const fs::path root_;
};

}  // namespace

TEST_CASE("NCCL is the file that is asked for, a framework's, the one beside the package, or the system's",
          "[unit][gpu]") {
  const Places places;
  CHECK(places.find(places.chosen(), places.framework()) == places.chosen());
  CHECK(places.find("", places.framework()) == places.framework());
  CHECK(places.find("", "") == places.beside());
  fs::remove(places.beside());
  CHECK(places.find("", "") == places.on_path());
}
