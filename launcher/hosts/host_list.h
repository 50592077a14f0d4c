#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/host_spec.h"
#include "runtime/base/input_file.h"
#include "runtime/base/status.h"

namespace hvd::launcher {

inline constexpr std::size_t kMaxHosts = 65'536;
inline constexpr int kMaxSlotsPerHost = 4096;
inline constexpr std::size_t kMaxHostTextBytes = 4u << 20;

// Grammar (docs/design/hosts-and-command-line.md):
//   place   = [user "@"] host
//   host    = name | IPv4 | "[" IPv6 "]"         (the brackets are syntax: HostSpec::name is without them)
//   entry   = place [[":" port] ":" slots]       (-H, separated by commas; also a line of a hostfile)
//   line    = place [":" port] {blank "slots=" N | blank "port=" P | blank "max_slots=" N}       (each at most once)
// So the last `:number` is the slots unless a key follows, and a number before it is the ssh port. Without a number of
// slots there is one, and a host that is named again adds its slots to the first mention, as in Open MPI.
// Nothing that could be an ssh option, a shell word or a control character passes: names are what ssh sees.

// The value of -H. Errors name the entry.
Result<std::vector<HostSpec>> parse_host_list(std::string_view text);

// The text of a hostfile: a host per line, blank lines and `#` comments ignored. Errors begin with `<file>:<line>: `.
Result<std::vector<HostSpec>> parse_hostfile(std::string_view text, std::string_view file);

// Reads a file of at most kMaxHostTextBytes; errors name it as a hostfile.
Result<std::string> read_host_text(const std::string& path, InputKind kind = InputKind::kFileOrPipe);
// Reads and parses the file.
Result<std::vector<HostSpec>> read_hostfile(const std::string& path);

// "a:2,u@b:2222:4": the text that parse_host_list reads back.
std::string host_list_text(const std::vector<HostSpec>& hosts);

inline constexpr int kMaxRanks = 1 << 20;

// So many ranks, shared by hosts of these names: the first get one more where it does not come out even. Requires: not
// more hosts than ranks. Pure.
std::vector<HostSpec> share_ranks(const std::vector<std::string>& names, int num_proc);

// Places exactly `num_proc` ranks: hosts are filled in the order listed, ranks are consecutive on a host. Hosts that
// get no rank are left out. Too few slots is an error naming both numbers and the hosts. Pure.
Result<std::vector<HostAssignment>> allocate(const std::vector<HostSpec>& hosts, int num_proc);

// The general form: as many ranks as there are slots, at most `max_num_proc`; fewer than `min_num_proc` is an error.
Result<std::vector<HostAssignment>> get_host_assignments(const std::vector<HostSpec>& hosts, int min_num_proc,
                                                         std::optional<int> max_num_proc);

}  // namespace hvd::launcher
