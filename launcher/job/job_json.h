#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/job/process_ledger.h"

// What --events and the summary say of times and processes, in the same words.
namespace hvd::launcher {

// The time in UTC, as "2026-01-31T12:00:00Z", or with milliseconds as "2026-01-31T12:00:00.123Z".
std::string utc_seconds(std::chrono::system_clock::time_point time);
std::string utc_millis(std::chrono::system_clock::time_point time);

// rank and local_rank (null of a spare), host, slot, incarnation, pid (null while it is not known).
void put_process(nlohmann::ordered_json& json, const ProcessRecord& record);
// exit_code (null after a signal), signal (null without one), both null when nobody knows, or it has not ended; seconds
// that it ran (null when it has not ended).
void put_end(nlohmann::ordered_json& json, const ProcessRecord& record);

}  // namespace hvd::launcher
