// What reaches a rank from another starter: answers of a process manager, rank 0's announcement, the starter's
// variables.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/check.h"
#include "runtime/config/starters.h"
#include "starters/announcement.h"
#include "starters/pmi_line.h"

using namespace hvd;

namespace {

void check_pmi(std::string_view text) {
  const auto line = starters::PmiLine::parse(text);
  if (!line.is_ok()) return;
  const std::string again = starters::pmi_request({{"cmd", line.value()["cmd"]}, {"value", line.value()["value"]}});
  const auto parsed = starters::PmiLine::parse(again.substr(0, again.size() - 1));
  HVD_CHECK(parsed.is_ok() && parsed.value()["cmd"] == line.value()["cmd"], "a request that does not come back");
}

void check_pmi2(std::string_view text) {
  const auto size = starters::pmi_block_size(text.substr(0, starters::kPmiBlockHead));
  if (size.is_ok()) HVD_CHECK(size.value() <= starters::kMaxPmiLine, "a block that is too large");
  const auto block = starters::PmiLine::parse_block(text);
  if (!block.is_ok() || block.value()["value"].find(';') != std::string::npos) return;
  const std::string again = starters::pmi_block({{"value", block.value()["value"]}});
  const auto parsed = starters::PmiLine::parse_block(std::string_view(again).substr(starters::kPmiBlockHead));
  HVD_CHECK(parsed.is_ok() && parsed.value()["value"] == block.value()["value"], "a block that does not come back");
}

void check_announcement(std::string_view text) {
  const auto announced = starters::decode_announcement(text);
  if (!announced.is_ok()) return;
  const auto again = starters::decode_announcement(starters::encode(announced.value()));
  HVD_CHECK(again.is_ok() && again.value().size == announced.value().size, "an announcement that does not come back");
}

void check_counts(std::string_view text) {
  constexpr std::size_t kMost = 1000;
  const auto counts = config::parse_repeated_counts(text, 16, kMost);
  if (!counts.is_ok()) return;
  HVD_CHECK(!counts.value().empty() && counts.value().size() <= kMost, "as many as allowed");
  for (const int count : counts.value()) HVD_CHECK(count >= 1 && count <= 16, "each as large as allowed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_pmi(text);
  check_pmi2(text);
  check_announcement(text);
  check_counts(text);
  const config::MapEnv env(config::MapEnv::Map{{"SLURM_STEP_NUM_TASKS", std::string(text)},
                                               {"SLURM_PROCID", "1"},
                                               {"SLURM_STEP_TASKS_PER_NODE", std::string(text)},
                                               {"PMI_SIZE", std::string(text.substr(0, 2))}});
  const auto started = config::find_starter(env);
  if (started.is_ok() && started.value()) HVD_CHECK(started.value()->rank < started.value()->size, "a rank of the job");
  return 0;
}
