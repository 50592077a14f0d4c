#include "launcher/plan/job_plan.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace hvd::launcher {

namespace {

bool is_file(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_program(const std::string& path) { return is_file(path) && ::access(path.c_str(), X_OK) == 0; }

// Without `#!` execvp would give the file to /bin/sh, which makes nonsense of it.
bool names_its_interpreter(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return file.get() == '#' && file.get() == '!';
}

// `path`: where the word leads to, if it is no name to be looked for in PATH.
bool can_be_executed(const std::string& word, const std::string& path, const config::EnvReader& env) {
  if (word.find('/') == std::string::npos) return !found_in_path(word, env).empty();
  return is_program(path) && names_its_interpreter(path);
}

}  // namespace

std::string python_beside(const std::string& program_directory, const config::EnvReader& env) {
  if (is_program(program_directory + "/python")) return program_directory + "/python";
  const std::string python = found_in_path("python", env);
  return python.empty() ? found_in_path("python3", env) : python;
}

// `-m` would put the current directory before all others: a file of the name of a module that this imports would run in
// its stead. So does an empty element of PYTHONPATH, which is that directory's full name by the time this runs. What is
// missing is said as by `-m`, in one line that names the Python.
std::vector<std::string> report_command(std::string python) {
  return {std::move(python), "-c",
          "import sys, posix; "
          "here = posix.getcwd() if b'' in (posix.environ.get(b'PYTHONPATH') or b'/').split(b':') else ''; "
          "sys.path[:] = [p for p in sys.path if p not in ('', here)]; import importlib.util, runpy; "
          "importlib.util.find_spec('horovod') or sys.exit(sys.executable + ': No module named horovod'); "
          "runpy.run_module('horovod', run_name='__main__', alter_sys=True)"};
}

std::string found_in_path(const std::string& name, const config::EnvReader& env) {
  const std::string path = env.get("PATH").value_or("");
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string directory = path.substr(at, end - at);
    at = end + 1;
    if (!directory.empty() && is_program(directory + "/" + name)) return directory + "/" + name;
  }
  return "";
}

void use_python_for_script(LaunchConfig& config, const config::EnvReader& env, const std::string& program_directory) {
  const std::string script = config.command.front();
  const std::string path = std::filesystem::path(config.wdir.value_or("")) / script;  // from where ranks start
  if (!script.ends_with(".py") || !is_file(path) || can_be_executed(script, path, env)) return;
  const std::string python = config.container.empty() ? python_beside(program_directory, env) : "python3";
  if (python.empty()) return;  // the start of the ranks will say what is wrong
  config.command.insert(config.command.begin(), python);
  config.notices.push_back(script + " is not an executable program; running it as `" + python + " " + script + "`");
}

}  // namespace hvd::launcher
