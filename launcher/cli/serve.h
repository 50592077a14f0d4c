#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/flag_values.h"
#include "runtime/base/status.h"
#include "runtime/config/env_reader.h"

namespace hvd::launcher {

struct ServeConfig {
  int num_proc = 0;
  std::string listen_address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any
  bool tls = false;
  std::optional<std::string> secret_file;
  std::string directory = "/tmp";  // for the secret file, when none is given

  bool operator==(const ServeConfig&) const = default;
};

// "ADDRESS", "ADDRESS:PORT" or "[ADDRESS]:PORT". Pure.
struct ListenPlace {
  std::string address;
  std::uint16_t port = 0;  // 0: none was given
};
Result<ListenPlace> parse_listen(std::string_view text);

// What `horovodrun --serve` was asked for by flags and environment; an error for a command, which it would not run.
Result<ServeConfig> make_serve_config(const FlagValues& values, const std::vector<std::string>& command,
                                      const config::EnvReader& env);

// Hosts the rendezvous for processes that something else starts, until SIGINT, SIGTERM, SIGHUP or SIGQUIT, but for the
// signals in `ignored` (bits 1 << number). What they need goes
// to stdout as NAME=VALUE lines, for people to stderr. The exit code of the program.
int serve(const ServeConfig& config, std::uint64_t ignored);

}  // namespace hvd::launcher
