#pragma once

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "runtime/base/bytes.h"
#include "test/support/temp_folder.h"

namespace hvd::test {

// A file that processes of ours can read, as long as this is there. It has a name of its own: /proc/.../fd/N of a file
// in memory would be, for a process that outlives it, whatever gets that number next.
class BytesFile {
 public:
  explicit BytesFile(ByteSpan bytes) {
    std::ofstream file(path(), std::ios::binary);
    file.write(as_text(bytes).data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    REQUIRE(file.good());
  }
  std::string path() const { return folder_ / "bytes"; }

 private:
  TempFolder folder_;
};

}  // namespace hvd::test
