#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/cli/parse.h"

namespace hvd::launcher {

// parse_command_line of a program called horovodrun with these arguments.
inline ParseOutcome parse(const std::vector<std::string>& args, const config::MapEnv::Map& env = {}) {
  std::vector<const char*> argv{"horovodrun"};
  for (const std::string& arg : args) argv.push_back(arg.c_str());
  return parse_command_line(static_cast<int>(argv.size()), argv.data(), config::MapEnv(env));
}

// The same with `-np 2` before and a command after `flags`. Requires: the command line is right.
inline LaunchConfig parse_job(std::vector<std::string> flags, const config::MapEnv::Map& env = {}) {
  flags.insert(flags.begin(), {"-np", "2"});
  flags.insert(flags.end(), {"python", "train.py"});
  ParseOutcome outcome = parse(flags, env);
  if (const auto* text = std::get_if<ExitText>(&outcome)) throw std::runtime_error(text->text);
  return std::get<LaunchConfig>(std::move(outcome));
}

// The first line of the error of a wrong command line, without "horovodrun: "; "" if it is right or exits otherwise.
inline std::string usage_error_of(const std::vector<std::string>& args, const config::MapEnv::Map& env = {}) {
  const ParseOutcome outcome = parse(args, env);
  const auto* text = std::get_if<ExitText>(&outcome);
  if (text == nullptr || text->code != 2 || !text->to_stderr || !text->text.starts_with("horovodrun: ")) return "";
  return text->text.substr(12, text->text.find('\n') - 12);
}

}  // namespace hvd::launcher
