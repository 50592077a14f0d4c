#include "launcher/job/process_json.h"

namespace hvd::launcher {

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
