// The end of a job for programs: what the summary says, under names that stay.
#include <nlohmann/json.hpp>

#include "launcher/job/job_json.h"
#include "launcher/job/job_summary.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json failure_json(const JobFailure& failure, const std::vector<std::string>& lines) {
  const std::string cause = failure.who ? cause_of(failure, lines) : "";
  const int signal = failure.status.signal;
  Json json;
  json["rank"] = failure.who ? Json(failure.who->rank) : Json();
  json["host"] = failure.host;
  json["pid"] = failure.who ? Json(failure.pid) : Json();
  json["exit_code"] = failure.exit_code;
  json["signal"] = signal != 0 ? Json(signal) : Json();
  json["what"] = failure.what;
  json["cause"] = cause.empty() ? Json() : Json(cause);
  json["last_stderr_lines"] = lines;
  return json;
}

Json lost_json(const std::optional<GoodEnd>& lost) {
  if (!lost) return {};
  Json json;
  json["rank"] = lost->who.rank;
  json["host"] = lost->host;
  json["before_failure"] = lost->is_before_failure;
  return json;
}

Json process_of_summary(const ProcessRecord& record) {
  const std::optional<rendezvous::RankWork>& work = record.work;
  Json json;
  put_process(json, record);
  put_end(json, record);
  json["collectives"] = work ? Json(work->collectives) : Json();
  json["bytes"] = work ? Json(work->bytes) : Json();
  json["waited_seconds"] = work ? Json(static_cast<double>(work->waited_us) / 1e6) : Json();
  json["session_seconds"] = work ? Json(static_cast<double>(work->session_us) / 1e6) : Json();
  return json;
}

Json straggler_json(const std::optional<Straggler>& straggler) {
  if (!straggler) return {};
  Json json;
  json["rank"] = straggler->who->rank ? Json(*straggler->who->rank) : Json();
  json["host"] = straggler->who->host;
  json["waited_part"] = straggler->waited;
  json["others_waited_part"] = straggler->others_waited;
  return json;
}

}  // namespace

std::string summary_json(const JobSummary& summary) {
  const Failures& failures = summary.failures;
  Json json;
  json["format"] = 1;
  json["version"] = HVD_VERSION;
  json["command"] = summary.command;
  json["num_proc"] = summary.num_proc;
  json["started"] = utc_seconds(summary.started);
  json["seconds"] = as_seconds(summary.duration);
  json["exit_code"] = summary.exit_code;
  json["first_failure"] = failures.first() ? failure_json(*failures.first(), summary.last_stderr_lines) : Json();
  const auto left = failures.left_before();
  json["left_before"] = left ? Json(left->rank) : Json();
  json["lost_before"] = lost_json(failures.lost_before(summary.last_stderr_lines));
  json["later_failures"] = failures.later();
  json["restarts"] = summary.restarts;
  json["waited_for_most"] = straggler_json(straggler_of(summary.processes));
  json["processes"] = Json::array();
  for (const auto& [process, record] : summary.processes.all()) json["processes"].push_back(process_of_summary(record));
  // What ranks print need not be UTF-8, which JSON is.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launcher
