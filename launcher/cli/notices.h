#pragma once

#include <string>
#include <vector>

#include "launcher/cli/flag_parser.h"
#include "launcher/cli/flag_values.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

// One line for each thing that was asked for and will not happen, and for each deprecated spelling. A flag whose value
// asks for nothing (--no-autotune) is silent. Pure.
std::vector<std::string> notices_of(const std::vector<GivenFlag>& given, const FlagValues& values);

// For a job of `num_proc` ranks without a list of hosts: what to say when the batch system has given several nodes, of
// which only this one will be used; "" otherwise. Reads the file PBS_NODEFILE names.
std::string unused_nodes_notice(const config::EnvReader& env, int num_proc);

}  // namespace hvd::launcher
