#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace hvd {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kFatal };

struct LogOptions {
  LogLevel level = LogLevel::kWarning;
  bool hide_time = false;
  int rank = -1;  // -1: not known, the [rank] part is left out
};

// The process-wide log, to stderr: `[<date time.µs>: <L> <file>:<line>] [<rank>]: <message>`. It is one of the two
// process-wide objects of the product (the other is the Python module's session), because stderr is process-wide.
// Thread-safe.
void configure_log(const LogOptions& options);
bool log_enabled(LogLevel level);
void write_log(LogLevel level, const char* file, int line, const std::string& message);

// One `name=value` of a structured log line.
template <typename T>
std::string log_field(std::string_view name, const T& value) {
  std::ostringstream out;
  out << ' ' << name << '=' << value;
  return out.str();
}

}  // namespace hvd

// HVD_LOG(kWarning, "peer lost", log_field("rank", 3), ...): the event in words, then its numbers.
#define HVD_LOG(level, ...)                                                                           \
  do {                                                                                                \
    if (::hvd::log_enabled(::hvd::LogLevel::level)) {                                                 \
      ::hvd::write_log(::hvd::LogLevel::level, __FILE__, __LINE__, ::hvd::detail::join(__VA_ARGS__)); \
    }                                                                                                 \
  } while (false)

namespace hvd::detail {
template <typename... Parts>
std::string join(const Parts&... parts) {
  std::string text;
  (text.append(parts), ...);
  return text;
}
}  // namespace hvd::detail
