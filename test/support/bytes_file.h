#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"

namespace hvd::test {

// A file in memory that processes of ours can read under its path, as long as this is there.
class BytesFile {
 public:
  explicit BytesFile(ByteSpan bytes) : fd_(::memfd_create("test", MFD_CLOEXEC)) {
    REQUIRE(write_all(fd_.get(), bytes.data(), bytes.size()).is_ok());
  }
  std::string path() const { return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_.get()); }

 private:
  Fd fd_;
};

}  // namespace hvd::test
