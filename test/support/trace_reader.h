#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "test/support/temp_folder.h"

namespace hvd::test {

// A timeline as a viewer reads it.
class TraceReader {
 public:
  // Throws where it is no JSON.
  explicit TraceReader(const std::string& text) : events_(nlohmann::json::parse(text)) {}
  static TraceReader of_file(const std::filesystem::path& file) {
    std::ifstream in(file);
    return TraceReader(std::string(std::istreambuf_iterator<char>(in), {}));
  }

  // What is on the tensor's line, in order: names of what begins, "/" for what ends, and marks of ranks.
  std::vector<std::string> line(const std::string& tensor) const {
    std::vector<std::string> found;
    const int pid = pid_of(tensor);
    for (const auto& event : events_) {
      const std::string phase = event.at("ph");
      if (event.at("pid") != pid || phase == "M") continue;
      found.push_back(phase == "E" ? "/" : event.at("name").get<std::string>());
    }
    return found;
  }
  // The arguments with which operations on it ended.
  std::vector<nlohmann::json> results(const std::string& tensor) const {
    std::vector<nlohmann::json> found;
    for (const auto& event : events_) {
      if (event.at("pid") == pid_of(tensor) && event.at("ph") == "E" && event.contains("args")) {
        found.push_back(event.at("args"));
      }
    }
    return found;
  }
  // Marks that belong to no tensor.
  std::size_t marks(const std::string& name) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        events_, [&](const auto& event) { return event.at("ph") == "i" && event.at("name") == name; }));
  }
  // -1: there is no such tensor.
  int pid_of(const std::string& tensor) const {
    for (const auto& event : events_) {
      if (event.at("ph") != "M" || event.at("name") != "process_name") continue;
      if (event.at("args").contains("name") && event.at("args").at("name") == tensor) return event.at("pid");
    }
    return -1;
  }
  // What has begun on some line and not ended there; an end without a beginning counts below zero.
  std::map<int, int> open() const {
    std::map<int, int> depths;
    for (const auto& event : events_) {
      int& depth = depths[event.at("pid")];
      if (event.at("ph") == "B") ++depth;
      if (event.at("ph") == "E" && depth-- == 0) return {{-1, -1}};
    }
    std::erase_if(depths, [](const auto& each) { return each.second == 0; });
    return depths;
  }
  const nlohmann::json& events() const { return events_; }

 private:
  nlohmann::json events_;
};

}  // namespace hvd::test
