#include <catch2/catch.hpp>

#include "launcher/binding/binding.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

// "0,8;1,9|2,10;3,11": nodes of cores of processors.
HostTopology host_of(const std::string& text, std::vector<HostTopology::Gpu> gpus = {}) {
  HostTopology host;
  int node = 0;
  std::string cpus;
  for (const char c : text + ";") {
    if (c != ';' && c != '|') {
      cpus += c;
      continue;
    }
    host.cores.push_back({.cpus = parse_cpu_list(cpus).value(), .numa = node});
    cpus.clear();
    if (c == '|') ++node;
  }
  host.gpus = std::move(gpus);
  return host;
}

std::string planned(const BindingConfig& config, std::size_t slots, const HostTopology& host) {
  const auto bindings = plan_binding(config, slots, host);
  if (!bindings.is_ok()) return bindings.status().message();
  std::string text;
  for (const SlotBinding& one : bindings.value()) {
    text += (text.empty() ? "" : " | ") + binding_text(one) + " x" + std::to_string(one.threads);
  }
  return text;
}

}  // namespace

TEST_CASE("Lists of processors are read and written as the kernel has them", "[unit][binding]") {
  for (const char* text : {"", "0", "0-3", "0,2,4-6", "0-3,8,10-11", "65535"}) {
    CHECK(cpu_list_text(parse_cpu_list(text).value()) == text);
  }
  for (const char* text : {"a", "3-1", "1,1", "2,1", "0-", "-1", "0 1", "65536", "0-99999999999"}) {
    INFO(text);
    CHECK(!parse_cpu_list(text).is_ok());
  }
}

TEST_CASE("Cores are shared out in blocks that leave no node where they need not", "[unit][binding]") {
  const BindingConfig core{.bind = Bind::kCore};
  const HostTopology two_nodes = host_of("0;1;2;3|4;5;6;7");
  CHECK(planned(core, 1, two_nodes) == "cpus 0-7 x8");
  CHECK(planned(core, 2, two_nodes) == "cpus 0-3 x4 | cpus 4-7 x4");
  CHECK(planned(core, 3, two_nodes) == "cpus 0-1 x2 | cpus 2-3 x2 | cpus 4-7 x4");
  CHECK(planned(core, 8, two_nodes).starts_with("cpus 0 x1 | cpus 1 x1"));
  CHECK(planned(core, 9, two_nodes) ==
        "--bind core: it has 8 cores that this job may use, for 9 ranks, expected one for each");
  // What the batch system left: one core of the first node.
  CHECK(planned(core, 3, host_of("3|4;5;6;7")) == "cpus 3 x1 | cpus 4-5 x2 | cpus 6-7 x2");
  CHECK(planned(core, 2, host_of("0|1|2|3")) == "cpus 0-1 x2 | cpus 2-3 x2");
  // Both threads of a core stay together.
  CHECK(planned(core, 2, host_of("0,2;1,3")) == "cpus 0,2 x1 | cpus 1,3 x1");
}

TEST_CASE("Ranks share nodes by how many cores these have", "[unit][binding]") {
  const BindingConfig numa{.bind = Bind::kNuma};
  CHECK(planned(numa, 4, host_of("0;1;2;3|4;5;6;7")) == "cpus 0-3 x2 | cpus 0-3 x2 | cpus 4-7 x2 | cpus 4-7 x2");
  CHECK(planned(numa, 1, host_of("0;1|2;3")) == "cpus 0-1 x2");
  CHECK(planned(numa, 3, host_of("0|1;2;3;4")) == "cpus 0 x1 | cpus 1-4 x2 | cpus 1-4 x2");
  CHECK(planned(numa, 4, host_of("0;1")) == "cpus 0-1 x1 | cpus 0-1 x1 | cpus 0-1 x1 | cpus 0-1 x1");
}

TEST_CASE("A host of an elastic job has a share for each GPU, and a slot takes the one that is used least",
          "[unit][binding]") {
  const BindingConfig gpu{.bind = Bind::kGpu, .one_gpu = true, .grows = true};
  const HostTopology host = host_of("0;1", {{"0", {0, 1}}, {"1", {0, 1}}});
  CHECK(plan_shares(gpu, 1, host).value().size() == 2);
  CHECK(plan_shares({.bind = Bind::kGpu, .one_gpu = true}, 1, host).value().size() == 1);
  CHECK(plan_shares({.bind = Bind::kCore, .grows = true}, 1, host).value().size() == 1);
  CHECK(!plan_shares(gpu, 3, host).is_ok());
  // More GPUs than cores: only as many as slots at the start.
  CHECK(plan_shares(gpu, 1, host_of("0", {{"0", {0}}, {"1", {0}}})).value().size() == 1);
  CHECK(choose_share({{.living = 1, .gone = 0}, {.living = 0, .gone = 1}, {.living = 0, .gone = 0}}) == 2);
  CHECK(choose_share({{.living = 1, .gone = 0}, {.living = 0, .gone = 1}}) == 1);
  CHECK(choose_share({{.living = 2, .gone = 0}, {.living = 1, .gone = 2}, {.living = 1, .gone = 2}}) == 1);
}

TEST_CASE("Each rank gets a GPU, and cores near it", "[unit][binding]") {
  const HostTopology host = host_of("0;1;2;3|4;5;6;7", {{"0", {4, 5, 6, 7}}, {"1", {0, 1, 2, 3}}, {"2", {4, 5, 6, 7}}});
  CHECK(planned({.bind = Bind::kGpu}, 3, host) == "cpus 4-5 x2 | cpus 0-3 x4 | cpus 6-7 x2");
  CHECK(planned({.bind = Bind::kNone, .one_gpu = true}, 2, host) == "all cpus, GPU 0 x0 | all cpus, GPU 1 x0");
  CHECK(planned({.bind = Bind::kCore, .one_gpu = true}, 2, host) == "cpus 0-3, GPU 0 x4 | cpus 4-7, GPU 1 x4");
  CHECK(planned({.bind = Bind::kNone, .one_gpu = true}, 4, host) ==
        "--bind-gpu: it has 3 GPUs that this job may use, for 4 ranks, expected one for each");
  CHECK(planned({.bind = Bind::kGpu}, 1, host_of("0")) ==
        "--bind gpu: it has 0 GPUs that this job may use, for 1 ranks, expected one for each");
  const HostTopology crowded = host_of("0;1|4", {{"a", {4}}, {"b", {4}}});
  CHECK(
      planned({.bind = Bind::kGpu}, 2, crowded).starts_with("--bind gpu: 1 of its cores are near GPU a, for 2 ranks"));
  // Where it is not known where a GPU is: in the only node, or anywhere.
  CHECK(planned({.bind = Bind::kGpu}, 2, host_of("0;1", {{"0", {}}, {"1", {0, 1}}})) == "cpus 0 x1 | cpus 1 x1");
  const HostTopology half_known = host_of("0;1|4;5", {{"a", {}}, {"b", {4, 5}}});
  CHECK(planned({.bind = Bind::kGpu}, 2, half_known) == "all cpus x0 | cpus 4-5 x2");
}
