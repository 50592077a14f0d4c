#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace hvd::test {

// For the files of a test, while it lives.
struct TempFolder {
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "hvd-test-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path / name).string(); }
  std::filesystem::path path;
};

}  // namespace hvd::test
