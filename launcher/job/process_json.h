#pragma once

#include <nlohmann/json.hpp>

#include "launcher/job/process_ledger.h"

// What --events and the summary say of a process, in the same words.
namespace hvd::launcher {

// rank and local_rank (null of a spare), host, slot, incarnation, pid (null while it is not known).
void put_process(nlohmann::ordered_json& json, const ProcessRecord& record);
// exit_code (null after a signal), signal (null without one), both null when nobody knows, or it has not ended; seconds
// that it ran (null when it has not ended).
void put_end(nlohmann::ordered_json& json, const ProcessRecord& record);

}  // namespace hvd::launcher
