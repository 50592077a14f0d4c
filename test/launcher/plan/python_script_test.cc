#include "launcher/plan/job_plan.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "launcher/hosts/host_list.h"
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

TEST_CASE("A Python file is looked for where ranks start", "[unit][plan]") {
  const Folder folder;
  const std::string python = folder.add("python", "#!/bin/sh\n", 0755);
  folder.add("train.py", "import os\n", 0644);
  folder.add("tool.py", "#!/usr/bin/env python3\n", 0755);
  const auto command = [&](const std::string& script, const std::optional<std::string>& wdir) {
    LaunchConfig config;
    config.command = {script};
    config.wdir = wdir;
    use_python_for_script(config, config::MapEnv(), folder.path());
    return config.command;
  };
  CHECK(command("train.py", folder.path()) == std::vector<std::string>{python, "train.py"});
  CHECK(command("./tool.py", folder.path()) == std::vector<std::string>{"./tool.py"});
  CHECK(command("train.py", std::nullopt) == std::vector<std::string>{"train.py"});
}

TEST_CASE("--wdir is where ranks start, and what their PWD says", "[unit][plan]") {
  const auto plan_in = [](const std::optional<std::string>& wdir) {
    LaunchConfig config;
    config.num_proc = 1;
    config.hosts = parse_host_list("a:1").value();
    config.command = {"true"};
    config.wdir = wdir;
    return make_job_plan(std::move(config), config::MapEnv()).value();
  };
  const std::string own = std::filesystem::current_path().string();
  CHECK(plan_in(std::nullopt).cwd == own);
  CHECK_FALSE(plan_in(std::nullopt).environment.set.contains("PWD"));
  CHECK(plan_in("/work/").cwd == "/work");
  CHECK(plan_in("/").cwd == "/");
  CHECK(plan_in("runs/../1").cwd == own + "/1");
  CHECK(plan_in("/work").environment.set.at("PWD") == "/work");
}

}  // namespace hvd::launcher
