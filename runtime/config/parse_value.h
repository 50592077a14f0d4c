#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/socket_io.h"
#include "runtime/base/status.h"

namespace hvd::config {

// Strict readers of configuration text, shared by variables, flags and the configuration file. Surrounding blanks are
// ignored; anything else left over is an error. The message says what was found and what was expected; the caller
// puts the variable or flag in front with Status::annotate.

Result<std::int64_t> parse_integer(std::string_view text, std::int64_t min, std::int64_t max);
Result<double> parse_real(std::string_view text, double min, double max);
// A number of bytes: a plain count, or with the suffix B, K, KB, KiB, M, MB, MiB, G, GB or GiB (all powers of 1024, as
// `--fusion-threshold-mb` counts).
Result<std::int64_t> parse_bytes(std::string_view text, std::int64_t min, std::int64_t max);
// An integer (> 0 is true) or true/false, yes/no, on/off in any case.
Result<bool> parse_bool(std::string_view text);
// The index of `text` in `choices` ("a|b|c"), any case.
Result<int> parse_choice(std::string_view text, std::string_view choices);
// "40000-40099", or one port.
Result<PortRange> parse_ports(std::string_view text);
// Comma-separated ids, each 0..4095.
Result<std::vector<int>> parse_cores(std::string_view text);

std::string_view trim(std::string_view text);
std::string to_lower(std::string_view text);
// The text in quotes for an error message: controls escaped (Letter), cut after 80 bytes.
std::string quoted(std::string_view text);

}  // namespace hvd::config
