#include "launcher/job/job_json.h"

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

using Json = nlohmann::ordered_json;

void put_process(Json& json, const ProcessRecord& record) {
  json["rank"] = record.rank ? Json(*record.rank) : Json();
  json["local_rank"] = record.rank ? Json(record.local_rank) : Json();
  json["host"] = record.host;
  json["slot"] = record.process.slot;
  json["incarnation"] = record.process.number;
  json["pid"] = record.pid > 0 ? Json(record.pid) : Json();
}

void put_end(Json& json, const ProcessRecord& record) {
  const std::optional<ExitStatus>& status = record.status;
  const bool by_signal = status && status->signal != 0;
  json["exit_code"] = status && !by_signal ? Json(status->code) : Json();
  json["signal"] = by_signal ? Json(status->signal) : Json();
  json["seconds"] = record.ended ? Json(as_seconds(*record.ended - record.started)) : Json();
}

}  // namespace hvd::launcher
