#include "launcher/plan/job_plan.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "test/support/temp_folder.h"

namespace hvd::launcher {

namespace {

class Folder {
 public:
  std::string add(const std::string& name, const std::string& text, mode_t mode) const {
    std::string path = folder_ / name;
    std::ofstream(path) << text;
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    return path;
  }
  std::string path() const { return folder_.path.string(); }

 private:
  test::TempFolder folder_;
};

LaunchConfig command_of(const std::vector<std::string>& command, const std::string& path, const std::string& beside) {
  LaunchConfig config;
  config.command = command;
  use_python_for_script(config, config::MapEnv({{"PATH", path}}), beside);
  return config;
}

}  // namespace

TEST_CASE("A Python file that is no program runs under Python", "[unit][plan]") {
  const Folder folder;
  const std::string script = folder.add("train.py", "import os\n", 0644);
  const std::string python = folder.add("python", "#!/bin/sh\n", 0755);
  const std::string program = folder.add("tool.py", "#!/usr/bin/env python3\n", 0755);
  const std::string without_line = folder.add("marked.py", "import os\n", 0755);

  const LaunchConfig config = command_of({script, "--epochs", "3"}, folder.path(), "/nonexistent");
  REQUIRE(config.command == std::vector<std::string>{python, script, "--epochs", "3"});
  REQUIRE(config.notices == std::vector<std::string>{script + " is not an executable program; running it as `" +
                                                     python + " " + script + "`"});
  REQUIRE(command_of({script}, "", folder.path()).command == std::vector<std::string>{python, script});
  REQUIRE(command_of({without_line}, folder.path(), "").command == std::vector<std::string>{python, without_line});

  REQUIRE(command_of({program}, folder.path(), "").command == std::vector<std::string>{program});
  REQUIRE(command_of({"tool.py"}, "/usr/bin::" + folder.path(), "").command == std::vector<std::string>{"tool.py"});
  REQUIRE(command_of({folder.path() + "/none.py"}, folder.path(), "").notices.empty());
  REQUIRE(command_of({script}, "", "").command == std::vector<std::string>{script});
  REQUIRE(command_of({folder.path() + "/python"}, "", "").notices.empty());
}

}  // namespace hvd::launcher
