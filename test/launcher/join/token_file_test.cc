#include "launcher/join/sealed_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "runtime/base/fd.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("a token may come through a pipe, which nobody has after that", "[unit][join]") {
  const std::string digits(64, 'a');
  for (const std::string& text : {digits, digits + "\n", std::string("short")}) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    {
      const Fd source(ends[1]);
      REQUIRE(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
    const std::string path = "/dev/fd/" + std::to_string(ends[0]);
    const auto token = read_token(path);
    CHECK(token.is_ok() == (text != "short"));
    if (!token.is_ok()) CHECK(token.status().message().find(path) != std::string::npos);
    CHECK(::fcntl(ends[0], F_GETFD) == -1);
  }
  for (const char* bad : {"/dev/fd/0", "/dev/fd/", "/dev/fd/x", "/dev/fd/1000000"}) {
    INFO(bad);
    CHECK_FALSE(read_token(bad).is_ok());
  }
}
