#include "launcher/job/job_status.h"

#include <nlohmann/json.hpp>

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Roster::SlotState state) {
  switch (state) {
    case Roster::SlotState::kWaiting: return "starting";
    case Roster::SlotState::kRunning: return "running";
    case Roster::SlotState::kEnded: return "ended";
  }
  return "";
}

Json slot_json(int number, const Roster::Slot& slot, bool is_spare) {
  Json json;
  json["slot"] = number;
  json["rank"] = is_spare ? Json() : Json(slot.placement.rank);
  json["local_rank"] = slot.placement.local_rank;
  json["pid"] = slot.pid > 0 ? Json(slot.pid) : Json();
  json["incarnation"] = slot.incarnation;
  const bool is_running = slot.state == Roster::SlotState::kRunning;
  json["state"] = is_running && slot.is_stopped ? "stopped" : is_running && is_spare ? "spare" : name_of(slot.state);
  return json;
}

Json host_json(const JobStatus& status, const Roster::Agent& agent) {
  Json json;
  json["name"] = agent.host;
  json["state"] = agent.state == Roster::AgentState::kReady ? "ready" : "connecting";
  json["slots"] = Json::array();
  for (const int slot : agent.slots) {
    json["slots"].push_back(slot_json(slot, status.roster.slot(slot), status.spares.contains(slot)));
  }
  return json;
}

Json round_json(const RoundRecord& round, TimePoint now) {
  Json json;
  json["round"] = round.number;
  json["ranks"] = round.ranks;
  json["seconds_ago"] = std::chrono::duration<double>(now - round.began).count();
  json["why"] = round.why;
  return json;
}

}  // namespace

std::string status_json(const JobStatus& status) {
  Json json;
  json["format"] = 1;
  json["version"] = HVD_VERSION;
  json["pid"] = status.pid;
  json["command"] = status.command;
  json["state"] = status.state;
  json["elastic"] = status.is_elastic;
  json["output_waits"] = status.output_waits;
  json["hosts"] = Json::array();
  for (const auto& [number, agent] : status.roster.agents()) {
    if (agent.state != Roster::AgentState::kGone) json["hosts"].push_back(host_json(status, agent));
  }
  json["rounds"] = Json::array();
  for (const RoundRecord& round : status.rounds) json["rounds"].push_back(round_json(round, status.now));
  // Arguments and reasons need not be UTF-8, which JSON is.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launcher
