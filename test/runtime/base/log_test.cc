#include <catch2/catch.hpp>

#include "test/support/captured_log.h"

namespace hvd {
namespace {

TEST_CASE("A log line names the rank where it is known", "[unit][log]") {
  test::CapturedLog log;
  configure_log({LogLevel::kWarning, true, 3});
  HVD_LOG(kWarning, "first");
  CHECK(log.text().find("] [3]: first\n") != std::string::npos);
  configure_log({LogLevel::kWarning, true, -1});
  HVD_LOG(kWarning, "second");
  CHECK(log.text().find("]: second\n") != std::string::npos);
}

}  // namespace
}  // namespace hvd
