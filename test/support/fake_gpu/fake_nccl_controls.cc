// What the tests ask of the fake NCCL.
#include <cstring>

#include "test/support/fake_gpu/fake_communicator.h"
#include "test/support/fake_gpu/fake_nccl.h"

using namespace fake_nccl;

HVD_FAKE void fake_nccl_fail(const char* name, int after, int code) {
  const std::lock_guard lock(world().mutex);
  if (code == kSuccess) {
    world().failures.erase(name);
  } else {
    world().failures[name] = {after, code};
  }
}
HVD_FAKE void fake_nccl_fail_late(int after, int code) { fake_nccl_fail(kLateFailure, after, code); }
HVD_FAKE void fake_nccl_set_last_error(const char* text) {
  const std::lock_guard lock(world().mutex);
  world().last_error = text != nullptr ? text : kUsualWords;
}
HVD_FAKE void fake_nccl_set_version(int version) { world().version = version; }
HVD_FAKE int fake_nccl_alive(const char* kind) {
  const std::lock_guard lock(world().mutex);
  if (std::strcmp(kind, "communicator") == 0) return static_cast<int>(world().comms.size());
  if (std::strcmp(kind, "memory") == 0) return static_cast<int>(world().memory.size());
  int reductions = 0;
  int windows = 0;
  int registrations = 0;
  for (const auto& [handle, comm] : world().comms) {
    reductions += static_cast<int>(comm->reductions.size());
    for (const auto& [key, one] : comm->registered) ++(one.window > 0 ? windows : registrations);
  }
  if (std::strcmp(kind, "window") == 0) return windows;
  return std::strcmp(kind, "registration") == 0 ? registrations : reductions;
}
HVD_FAKE int fake_nccl_calls(const char* name) {
  const std::lock_guard lock(world().mutex);
  return world().calls[name];
}
HVD_FAKE const char* fake_nccl_breaches() {
  const std::lock_guard lock(world().mutex);
  world().breaches_text = world().breaches;
  return world().breaches_text.c_str();
}
HVD_FAKE void fake_nccl_forget_breaches() {
  const std::lock_guard lock(world().mutex);
  world().breaches.clear();
}
HVD_FAKE void fake_nccl_set_windows(int has_windows) {
  const std::lock_guard lock(world().mutex);
  world().windows = has_windows != 0;
}
HVD_FAKE void fake_nccl_set_async_error(int code) {
  const std::lock_guard lock(world().mutex);
  world().async_error = code;
}
HVD_FAKE void fake_nccl_set_room(int collectives) {
  const std::lock_guard lock(world().mutex);
  world().room = collectives;
}
HVD_FAKE int fake_nccl_running(int device) {
  const std::lock_guard lock(world().mutex);
  return world().running[device];
}
HVD_FAKE void fake_nccl_set_launches_late(int are_late) {
  const std::lock_guard lock(world().mutex);
  world().launches_are_late = are_late != 0;
}
HVD_FAKE int fake_nccl_late_launches() {
  const std::lock_guard lock(world().mutex);
  int late = 0;
  for (const auto& [handle, comm] : world().comms) late += comm->is_late ? 1 : 0;
  return late;
}
HVD_FAKE void fake_nccl_hold_joins(int device) {
  {
    const std::lock_guard lock(world().mutex);
    world().holds_joins_on = device;
  }
  world().released.notify_all();
}
HVD_FAKE int fake_nccl_held_joins() {
  const std::lock_guard lock(world().mutex);
  return world().held_joins;
}
HVD_FAKE void fake_nccl_hold_aborts(int are_held) {
  {
    const std::lock_guard lock(world().mutex);
    world().holds_aborts = are_held != 0;
  }
  world().released.notify_all();
}
HVD_FAKE int fake_nccl_held_aborts() {
  const std::lock_guard lock(world().mutex);
  return world().held_aborts;
}
HVD_FAKE void fake_nccl_forget() {
  const std::lock_guard lock(world().mutex);
  world().memory.clear();
}
