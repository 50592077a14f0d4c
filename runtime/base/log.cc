#include "runtime/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace hvd {

namespace {

// The sink is a spdlog object made once and never destroyed: threads may still log while the process exits.
class ProcessLog {
 public:
  ProcessLog() : logger_("horovod", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_level(spdlog::level::trace);
    set_pattern(false, -1);
  }
  void configure(const LogOptions& options) {
    level_.store(options.level, std::memory_order_relaxed);
    set_pattern(options.hide_time, options.rank);
  }
  bool enabled(LogLevel level) const { return level >= level_.load(std::memory_order_relaxed); }
  void write(LogLevel level, const char* file, int line, const std::string& message) {
    static constexpr spdlog::level::level_enum kMap[] = {spdlog::level::trace, spdlog::level::debug,
                                                         spdlog::level::info,  spdlog::level::warn,
                                                         spdlog::level::err,   spdlog::level::critical};
    logger_.log(spdlog::source_loc{file, line, ""}, kMap[static_cast<int>(level)], message);
    logger_.flush();
  }

 private:
  void set_pattern(bool hide_time, int rank) {
    std::string pattern = hide_time ? "[%L %s:%#]" : "[%Y-%m-%d %H:%M:%S.%f: %L %s:%#]";
    if (rank >= 0) pattern += " [" + std::to_string(rank) + "]";
    pattern += ": %v";
    logger_.set_pattern(pattern);
  }

  spdlog::logger logger_;
  std::atomic<LogLevel> level_{LogLevel::kWarning};
};

ProcessLog& process_log() {
  static auto* log = new ProcessLog;
  return *log;
}

}  // namespace

void configure_log(const LogOptions& options) { process_log().configure(options); }
bool log_enabled(LogLevel level) { return process_log().enabled(level); }
void write_log(LogLevel level, const char* file, int line, const std::string& message) {
  process_log().write(level, file, line, message);
}

}  // namespace hvd
