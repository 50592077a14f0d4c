#include "launcher/job/utc_time.h"

#include <ctime>

namespace hvd::launcher {
namespace {

std::string formatted(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(std::chrono::floor<std::chrono::seconds>(time));
  std::tm utc = {};
  char text[32];
  gmtime_r(&seconds, &utc);
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc)};
}

}  // namespace

std::string utc_seconds(std::chrono::system_clock::time_point time) { return formatted(time) + "Z"; }

std::string utc_millis(std::chrono::system_clock::time_point time) {
  const auto part =
      std::chrono::floor<std::chrono::milliseconds>(time - std::chrono::floor<std::chrono::seconds>(time));
  return formatted(time) + "." + std::to_string(1000 + part.count()).substr(1) + "Z";
}

}  // namespace hvd::launcher
