#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::test {

// A golden script is a text file of blocks, separated by empty lines:
//   # comment
//   command word key=value ...      (one or more lines)
//   ----
//   what the commands must print    (no empty lines)
// With HVD_REWRITE_GOLDEN=1 in the environment the expected parts are rewritten instead of compared; the difference is
// reviewed like code.
struct GoldenCommand {
  std::string name;
  std::map<std::string, std::string> args;
  std::vector<std::string> words;  // arguments without '='

  std::string text(const std::string& key, const std::string& otherwise) const {
    const auto at = args.find(key);
    return at == args.end() ? otherwise : at->second;
  }
  long long number(const std::string& key, long long otherwise) const {
    const auto at = args.find(key);
    return at == args.end() ? otherwise : std::stoll(at->second);
  }
  double real(const std::string& key, double otherwise) const {
    const auto at = args.find(key);
    return at == args.end() ? otherwise : std::stod(at->second);
  }
  // The value of an enumeration of `count` values that is called so.
  template <typename Enum>
  Enum one_of(const std::string& key, const std::string& otherwise, int count,
              std::string_view (*name_of)(Enum)) const {
    const std::string word = text(key, otherwise);
    for (int i = 0; i < count; ++i) {
      if (name_of(static_cast<Enum>(i)) == word) return static_cast<Enum>(i);
    }
    FAIL("unknown word " << word);
    return Enum{};
  }
};

inline GoldenCommand parse_golden_command(const std::string& line) {
  std::istringstream in(line);
  GoldenCommand command;
  in >> command.name;
  for (std::string word; in >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) {
      command.words.push_back(word);
    } else {
      command.args[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  return command;
}

// Runs every block of the file through `run`, which executes one command and returns what it prints (lines ended by
// '\n').
inline void run_golden_script(const std::filesystem::path& path,
                              const std::function<std::string(const GoldenCommand&)>& run) {
  const bool rewrite = std::getenv("HVD_REWRITE_GOLDEN") != nullptr;
  std::ifstream in(path);
  REQUIRE(in.good());
  std::string output;  // the file as it should be
  std::string printed;
  std::string expected;
  bool in_expected = false;
  int line_number = 0;
  int blocks = 0;
  const auto finish_block = [&] {
    if (!in_expected) return;
    INFO(path.string() << ", block that ends before line " << line_number + 1);
    if (!rewrite) CHECK(printed == expected);
    output += printed;
    printed.clear();
    expected.clear();
    in_expected = false;
    ++blocks;
  };
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (in_expected && !line.empty()) {
      expected += line + "\n";
      continue;
    }
    if (line.empty()) finish_block();
    output += line + "\n";
    if (line == "----") {
      in_expected = true;
      if (printed.empty()) printed = "ok\n";
    } else if (!line.empty() && line[0] != '#') {
      printed += run(parse_golden_command(line));
    }
  }
  finish_block();
  CHECK(blocks > 0);
  if (rewrite) std::ofstream(path) << output;
}

// One section per script of the folder; at least one must be there.
inline std::vector<std::filesystem::path> golden_scripts(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  REQUIRE(!found.empty());
  return found;
}

}  // namespace hvd::test
