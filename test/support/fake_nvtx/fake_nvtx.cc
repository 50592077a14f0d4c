// A profiler as NVTX knows one: it keeps the ranges that it is told of, for tests to ask for. Written from the binary
// interface and not with NVTX's headers, so that it says what a profiler that was built long ago would see.
#include "test/support/fake_nvtx/fake_nvtx.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

#define HVD_FAKE extern "C" __attribute__((visibility("default")))

namespace {

struct Event {  // nvtxEventAttributes_v2
  std::uint16_t version;
  std::uint16_t size;
  std::uint32_t category;
  std::int32_t color_type;
  std::uint32_t color;
  std::int32_t payload_type;
  std::int32_t reserved;
  std::uint64_t payload;
  std::int32_t message_type;
  const char* message;
};
constexpr int kAscii = 1;
constexpr int kUnsigned64 = 1;

struct Domain {
  std::string name;
};

struct World {
  std::mutex mutex;
  std::set<Domain*> domains;
  std::map<std::uint64_t, std::pair<Domain*, std::string>> open;
  std::uint64_t next = 1;
  std::string ended;
  std::string breaches;
};

// Never destroyed: sessions may end after this library's statics.
World& world() {
  static World* const world = new World;
  return *world;
}

void* create_domain(const char* name) {
  const std::lock_guard lock(world().mutex);
  return *world().domains.insert(new Domain{name}).first;
}

void destroy_domain(void* handle) {
  const std::lock_guard lock(world().mutex);
  auto* const domain = static_cast<Domain*>(handle);
  if (world().domains.erase(domain) == 0) {
    world().breaches += "a domain is destroyed that is not there\n";
    return;
  }
  for (const auto& [id, range] : world().open) {
    if (range.first == domain) world().breaches += "a domain is destroyed before the end of " + range.second + "\n";
  }
  delete domain;
}

std::uint64_t start(void* handle, const Event* event) {
  const std::lock_guard lock(world().mutex);
  auto* const domain = static_cast<Domain*>(handle);
  if (!world().domains.contains(domain)) {
    world().breaches += "a range begins in no domain\n";
    return 0;
  }
  const bool is_plain =
      event->size == sizeof(Event) && event->message_type == kAscii && event->payload_type == kUnsigned64;
  if (!is_plain) world().breaches += "a range is not described as it should be\n";
  const std::uint64_t id = world().next++;
  world().open[id] = {domain, domain->name + " " + event->message + " " + std::to_string(event->payload)};
  return id;
}

void end(void* handle, std::uint64_t id) {
  const std::lock_guard lock(world().mutex);
  const auto at = world().open.find(id);
  if (at == world().open.end() || at->second.first != handle) {
    world().breaches += "what ends is no range of that domain\n";
    return;
  }
  world().ended += at->second.second + "\n";
  world().open.erase(at);
}

// Memory of the calling thread, until it asks again.
const char* keep(const std::string& text) {
  thread_local std::string kept;
  kept = text;
  return kept.c_str();
}

// What NVTX gives: for each module a table of places where the profiler puts its functions.
using Function = void (*)();
struct Callbacks {
  std::size_t size;
  int (*table_of)(int module, Function*** table, unsigned* places);
};
constexpr std::uint32_t kCallbacks = 1;
constexpr int kCore2 = 5;
enum Place { kRangeStart = 2, kRangeEnd = 3, kDomainCreate = 12, kDomainDestroy = 14 };

}  // namespace

HVD_FAKE int InitializeInjectionNvtx2(const void* (*get_table)(std::uint32_t)) {
  const auto* const callbacks = static_cast<const Callbacks*>(get_table(kCallbacks));
  Function** places = nullptr;
  unsigned count = 0;
  if (callbacks == nullptr || callbacks->table_of(kCore2, &places, &count) == 0 || count <= kDomainDestroy) return 0;
  *places[kRangeStart] = reinterpret_cast<Function>(&start);
  *places[kRangeEnd] = reinterpret_cast<Function>(&end);
  *places[kDomainCreate] = reinterpret_cast<Function>(&create_domain);
  *places[kDomainDestroy] = reinterpret_cast<Function>(&destroy_domain);
  return 1;
}

HVD_FAKE const char* fake_nvtx_take_ended() {
  const std::lock_guard lock(world().mutex);
  const char* const text = keep(world().ended);
  world().ended.clear();
  return text;
}

HVD_FAKE const char* fake_nvtx_open() {
  const std::lock_guard lock(world().mutex);
  std::string text;
  for (const auto& [id, range] : world().open) text += range.second + "\n";
  return keep(text);
}

HVD_FAKE const char* fake_nvtx_domains() {
  const std::lock_guard lock(world().mutex);
  std::set<std::string> names;
  for (const Domain* domain : world().domains) names.insert(domain->name);
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return keep(text);
}

HVD_FAKE const char* fake_nvtx_breaches() {
  const std::lock_guard lock(world().mutex);
  return keep(world().breaches);
}
