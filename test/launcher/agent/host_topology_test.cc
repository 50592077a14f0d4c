#include "launcher/agent/host_topology.h"

#include <sched.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "launcher/agent/agent.h"
#include "test/support/temp_folder.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::string text_of(const std::vector<HostTopology::Core>& cores) {
  std::string text;
  for (const HostTopology::Core& core : cores) text += std::to_string(core.numa) + ":" + cpu_list_text(core.cpus) + " ";
  return text;
}

std::string text_of(const std::vector<HostTopology::Gpu>& gpus) {
  std::string text;
  for (const HostTopology::Gpu& gpu : gpus) text += gpu.name + "@" + cpu_list_text(gpu.near) + " ";
  return text;
}

// What the NVIDIA driver shows of its devices, as files.
class FakeHost {
 public:
  FakeHost() { std::filesystem::create_directories(folder_ / "dev"); }
  void add(const std::string& bus, int minor, const std::string& cpus, bool may_open = true) {
    write("proc/driver/nvidia/gpus/" + bus + "/information",
          "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-" + bus + "\nDevice Minor: \t " + std::to_string(minor) + "\n");
    write("sys/bus/pci/devices/" + bus + "/local_cpulist", cpus + "\n");
    if (may_open) write("dev/nvidia" + std::to_string(minor), "");
  }
  std::string root() const { return folder_.path.string(); }

 private:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_.path / path).parent_path());
    std::ofstream(folder_ / path) << text;
  }
  test::TempFolder folder_;
};

}  // namespace

TEST_CASE("Cores of other machines are read as hwloc describes them", "[unit][agent]") {
  CHECK(text_of(cores_of_host("package:2 numa:1 core:2 pu:2").value()) == "0:0-1 0:2-3 1:4-5 1:6-7 ");
  CHECK(text_of(cores_of_host("numa:1 core:1 pu:1").value()) == "0:0 ");
  CHECK(!cores_of_host("nothing:of the kind").is_ok());
}

TEST_CASE("The cores of this host are those that the affinity leaves", "[unit][agent]") {
  cpu_set_t all;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &all)) --last;
  std::size_t cpus = 0;
  const auto here = cores_of_host();
  for (const auto& core : here.value()) cpus += core.cpus.size();
  CHECK(cpus == static_cast<std::size_t>(CPU_COUNT(&all)));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  const auto left = cores_of_host();
  REQUIRE(::sched_setaffinity(0, sizeof all, &all) == 0);
  REQUIRE(left.value().size() == 1);
  CHECK(left.value()[0].cpus == Cpus{last});
}

TEST_CASE("GPUs are those that may be opened, in the order of the bus", "[unit][agent]") {
  FakeHost host;
  CHECK(gpus_of_host(std::nullopt, host.root()).empty());
  host.add("0000:b1:00.0", 0, "4-7");
  host.add("0000:17:00.0", 1, "0-3");
  host.add("0000:65:00.0", 2, "0-3", false);  // another job's
  CHECK(text_of(gpus_of_host(std::nullopt, host.root())) == "0@0-3 1@4-7 ");
  CHECK(text_of(gpus_of_host("1,0", host.root())) == "1@4-7 0@0-3 ");
  CHECK(text_of(gpus_of_host("GPU-0000:b1,MIG-7", host.root())) == "GPU-0000:b1@4-7 MIG-7@ ");
  CHECK(text_of(gpus_of_host("1,-1,0", host.root())) == "1@4-7 ");
  CHECK(gpus_of_host("", host.root()).empty());
}

TEST_CASE("A binding sets variables that are not the user's", "[unit][agent]") {
  const SlotBinding binding{.cpus = {0, 1}, .threads = 2, .gpu = "1"};
  CHECK(binding_variables(binding, {}, true) ==
        Variables{{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES", "1"}, {"OMP_NUM_THREADS", "2"}});
  CHECK(binding_variables(binding, {{"CUDA_VISIBLE_DEVICES", "1,0"}}, false) ==
        Variables{{"CUDA_VISIBLE_DEVICES", "1"}});
  CHECK(binding_variables({}, {}, true).empty());
}

TEST_CASE("This host has a loopback interface and cores", "[unit][agent]") {
  const HostFacts here = facts_of_this_host();
  CHECK(std::ranges::count(here.interfaces, "lo") == 1);
  CHECK(here.cores >= 1);
}
