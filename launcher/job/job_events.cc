#include "launcher/job/job_events.h"

#include <utility>

#include "launcher/elastic/host_book.h"
#include "launcher/job/job_json.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json process_json(const ProcessRecord& record) {
  Json json;
  put_process(json, record);
  return json;
}

Json failure_json(const JobFailure& failure) {
  Json json;
  json["rank"] = failure.who ? Json(failure.who->rank) : Json();
  json["host"] = failure.host.empty() ? Json() : Json(failure.host);
  json["exit_code"] = failure.exit_code;
  json["what"] = failure.what;
  return json;
}

}  // namespace

// An event on its way: written when it goes out of scope. What nobody reads is not put together.
class JobEvents::Line {
 public:
  Line(const JobEvents& events, const char* event) : events_(events) {
    if (!*this) return;
    json["time"] = utc_millis(events_.clock_());
    json["event"] = event;
    json["job"] = events_.job_;
  }
  // What ranks say and what hosts are called need not be UTF-8, which JSON is.
  ~Line() {
    if (*this) events_.write_(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  explicit operator bool() const { return events_.write_ != nullptr; }

  Json json;

 private:
  const JobEvents& events_;
};

JobEvents::JobEvents(int job, Write write, Clock clock)
    : job_(job), write_(std::move(write)), clock_(std::move(clock)) {}

void JobEvents::job_started(const LaunchConfig& config, const std::vector<HostAssignment>& hosts) {
  Line line(*this, "job_started");
  if (!line) return;
  line.json["format"] = 1;
  line.json["version"] = HVD_VERSION;
  line.json["command"] = config.command;
  line.json["num_proc"] = config.num_proc;
  line.json["elastic"] = config.elastic.has_value();
  line.json["min_num_proc"] = config.elastic ? config.elastic->min_num_proc : config.num_proc;
  line.json["max_num_proc"] = config.elastic ? config.elastic->max_num_proc : config.num_proc;
  line.json["hosts"] = Json::array();
  if (config.elastic) return;
  for (const HostAssignment& host : hosts) {
    line.json["hosts"].push_back({{"name", host.host.name}, {"ranks", host.ranks.size()}});
  }
}

void JobEvents::host_added(const std::string& host) { Line(*this, "host_added").json["host"] = host; }
void JobEvents::host_ready(const std::string& host) { Line(*this, "host_ready").json["host"] = host; }
void JobEvents::host_removed(const std::string& host) { Line(*this, "host_removed").json["host"] = host; }

void JobEvents::host_lost(const std::string& host, const std::string& why) {
  Line line(*this, "host_lost");
  line.json["host"] = host;
  line.json["why"] = why;
}

void JobEvents::hosts_changed(int change) {
  Line line(*this, "hosts_changed");
  line.json["slots_added"] = (change & kHostAdded) != 0;
  line.json["slots_removed"] = (change & kHostRemoved) != 0;
}

void JobEvents::rank_started(const ProcessRecord& record) {
  Line line(*this, "rank_started");
  put_process(line.json, record);
}

void JobEvents::rank_not_started(const ProcessRecord& record, int exit_code, const std::string& why) {
  Line line(*this, "rank_not_started");
  put_process(line.json, record);
  line.json["exit_code"] = exit_code;
  line.json["why"] = why;
}

void JobEvents::rank_ended(const ProcessRecord& record) {
  Line line(*this, "rank_ended");
  put_process(line.json, record);
  put_end(line.json, record);
}

void JobEvents::rank_stalled(const ProcessRecord& record) {
  Line line(*this, "rank_stalled");
  put_process(line.json, record);
}

void JobEvents::round_began(const RoundRecord& round, const std::vector<ProcessRecord>& ranks) {
  Line line(*this, "round_began");
  if (!line) return;
  line.json["round"] = round.number;
  line.json["why"] = round.why;
  line.json["size"] = round.ranks;
  line.json["ranks"] = Json::array();
  for (const ProcessRecord& record : ranks) line.json["ranks"].push_back(process_json(record));
}

void JobEvents::job_ended(int exit_code, SteadyClock::duration duration, int restarts, const JobFailure* failure) {
  {
    Line line(*this, "job_ended");
    line.json["exit_code"] = exit_code;
    line.json["seconds"] = as_seconds(duration);
    line.json["restarts"] = restarts;
    line.json["first_failure"] = failure != nullptr ? failure_json(*failure) : Json();
  }
  write_ = nullptr;
}

}  // namespace hvd::launcher
