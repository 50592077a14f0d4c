#pragma once

#include <string>

#include "launcher/elastic/elastic_job.h"

namespace hvd::launcher {

inline std::string to_text(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) {
    text += (text.empty() ? "" : ", ") + host.host;
    for (const int slot : host.slots) text += " " + std::to_string(slot);
  }
  return text;
}

inline std::string to_text(const ElasticDecision& decision) {
  using Kind = ElasticDecision::Kind;
  const std::string agent = "agent " + std::to_string(decision.agent);
  const std::string process =
      "slot " + std::to_string(decision.process.slot) + ", incarnation " + std::to_string(decision.process.number);
  switch (decision.kind) {
    case Kind::kOpenHost: return "open " + agent + " on " + decision.host.name;
    case Kind::kCloseHost: return "close " + agent;
    case Kind::kStart:
      return "start " + process + " on " + agent + " as rank " + std::to_string(decision.placement.rank) + " of " +
             std::to_string(decision.placement.size);
    case Kind::kRemove: return "remove " + process + ": " + decision.text;
    case Kind::kStop: return (decision.at_once ? "kill " : "stop ") + process;
    case Kind::kReport: return "report slot " + std::to_string(decision.process.slot) + ": " + decision.text;
    case Kind::kOffer: return "offer " + to_text(decision.hosts);
    case Kind::kWithdraw: return "withdraw";
    case Kind::kNotify: return "notify " + std::to_string(decision.change);
    case Kind::kPrint: return "print: " + decision.text;
    case Kind::kEnd: return decision.is_well ? "end well" : "end: " + decision.text;
  }
  return "";
}

}  // namespace hvd::launcher
