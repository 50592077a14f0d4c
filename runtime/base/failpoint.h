#pragma once

#include <string>

#include "runtime/base/status.h"

// Failpoints: named places where a test makes the product fail. They are only in builds with HVD_FAILPOINTS=ON (the
// presets dev, asan, tsan, coverage): elsewhere the macros leave nothing behind, not even the names. What is armed is
// process-wide, as a process' death is, and mutable, as no other global of the product; so it exists only there.
//
//   HVD_FAILPOINT("lane.start");                       the process ends, stops or is late here
//   HVD_FAILPOINT_RETURN("join.listen");               also: the enclosing function returns a Status
//   n = HVD_FAILPOINT_CALL("net.accept", accept4(…))   also: the call fails with an errno instead of being made
//   n = HVD_FAILPOINT_IO("data.send", count, send(…))  also: `count`, a variable that the call uses, is 1
namespace hvd::failpoint {

// Arms what `text` says, and nothing else. Says the same text again: changes nothing, so that a session that begins
// anew goes on counting. kInvalidArgument: a name, an action or a form that is not known; any text but "" in a build
// without failpoints. Thread-safe.
//   text   = [point *(";" point)]
//   point  = name "=" action ["@" hit ["+"]]         hit: the how manieth passage, 1 by default; "+": and all later
//   ones action = exit | abort | kill | stop | delay:MS | error | ECONNRESET | ENOMEM | EMFILE | ... | short
// A place takes what the comment above says of its kind; `error` is EIO where the place wants an errno.
// `hits`: a file that gets the name of a point and the process' id in a line before what happens there happens; none
// without a name.
Status arm(const std::string& text, const std::string& hits = "");

}  // namespace hvd::failpoint

#ifdef HVD_FAILPOINTS

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hvd::failpoint {

enum class Kind { kPlace, kReturn, kCall, kIo };

struct Row {
  std::string_view name;
  Kind kind;
};

// Every failpoint, once; test/arch compares this with the code.
// clang-format off
inline constexpr auto kTable = std::to_array<Row>({
    // How a rank finds the others.
    {"join.begin", Kind::kReturn}, {"join.secret", Kind::kReturn}, {"join.listen", Kind::kReturn},
    {"join.ask", Kind::kReturn}, {"join.answered", Kind::kReturn},
    {"reach.open", Kind::kReturn}, {"reach.agree", Kind::kReturn}, {"reach.memory", Kind::kReturn},
    {"reach.done", Kind::kReturn}, {"session.connect", Kind::kReturn}, {"session.sets", Kind::kReturn},
    {"session.begun", Kind::kReturn},
    // The rendezvous: client, then server.
    {"client.connect", Kind::kReturn}, {"client.send", Kind::kReturn}, {"client.receive", Kind::kReturn},
    {"client.session", Kind::kReturn}, {"agent.ask", Kind::kReturn},
    {"server.accept", Kind::kCall}, {"server.request", Kind::kPlace}, {"server.join", Kind::kPlace},
    {"server.round", Kind::kPlace}, {"server.answer", Kind::kPlace},
    // Threads of ours.
    {"thread.start", Kind::kCall},
    // Sockets of any purpose whose callers may block.
    {"socket.connect", Kind::kCall}, {"socket.send", Kind::kIo}, {"socket.receive", Kind::kIo},
    // Connections between ranks.
    {"net.socket", Kind::kCall}, {"net.listen", Kind::kCall}, {"net.accept", Kind::kCall}, {"net.configure", Kind::kReturn},
    {"hello.send", Kind::kReturn}, {"hello.receive", Kind::kIo}, {"hello.answer", Kind::kPlace}, {"hello.done", Kind::kPlace},
    {"control.parent", Kind::kReturn}, {"control.children", Kind::kReturn}, {"control.send", Kind::kIo},
    {"control.receive", Kind::kIo}, {"control.goodbye", Kind::kPlace},
    {"data.connect", Kind::kReturn}, {"data.connect_more", Kind::kReturn}, {"data.accept", Kind::kPlace},
    {"data.context", Kind::kReturn}, {"data.send", Kind::kIo}, {"data.receive", Kind::kIo}, {"tls.send", Kind::kIo}, {"tls.receive", Kind::kIo},
    // Negotiation and execution.
    {"engine.submit", Kind::kPlace}, {"engine.report", Kind::kPlace}, {"engine.gather", Kind::kPlace},
    {"engine.decide", Kind::kPlace}, {"engine.deliver", Kind::kPlace}, {"engine.lost", Kind::kPlace},
    {"engine.stop", Kind::kPlace}, {"lane.start", Kind::kPlace}, {"lane.pack", Kind::kReturn}, {"lane.unpack", Kind::kPlace},
    {"lane.done", Kind::kPlace},
    // Collectives over connections, then in shared memory.
    {"gloo.begin", Kind::kReturn}, {"gloo.end", Kind::kReturn}, {"ring.segment", Kind::kPlace}, {"tree.step", Kind::kPlace},
    {"exchange.step", Kind::kPlace},
    {"shm.memory", Kind::kCall}, {"shm.size", Kind::kCall}, {"shm.map", Kind::kReturn}, {"shm.offer", Kind::kReturn},
    {"shm.take", Kind::kReturn}, {"shm.verdict", Kind::kReturn}, {"shm.begin", Kind::kReturn}, {"shm.round", Kind::kReturn},
    {"shm.mark", Kind::kPlace},
    // The end of a session.
    {"end.shutdown", Kind::kPlace}, {"end.stopped", Kind::kPlace}, {"end.lanes", Kind::kPlace}, {"end.links", Kind::kPlace},
    // The launcher: its processes and pipes, the job, its hosts.
    {"child.spawn", Kind::kReturn}, {"pipe.open", Kind::kReturn}, {"pipe.read", Kind::kPlace},
    {"pipe.write", Kind::kCall}, {"input.read", Kind::kPlace}, {"frame.next", Kind::kReturn},
    {"link.start", Kind::kReturn}, {"link.greeted", Kind::kPlace}, {"fleet.send", Kind::kPlace},
    {"launch.listen", Kind::kReturn}, {"launch.add", Kind::kReturn}, {"launch.frame", Kind::kPlace},
    {"driver.timer", Kind::kPlace}, {"driver.done", Kind::kPlace}, {"driver.hello", Kind::kReturn},
    {"driver.output", Kind::kReturn}, {"driver.process", Kind::kReturn}, {"summary.write", Kind::kPlace},
    {"status.listen", Kind::kReturn}, {"files.open", Kind::kReturn}, {"files.write", Kind::kReturn},
    {"events.write", Kind::kReturn},
    {"hosts.found", Kind::kPlace}, {"ssh.query", Kind::kReturn},
    // The launcher of an elastic job.
    {"elastic.hosts", Kind::kPlace}, {"elastic.prepare", Kind::kReturn}, {"elastic.waiting", Kind::kPlace},
    {"elastic.began", Kind::kPlace}, {"elastic.offer", Kind::kPlace}, {"elastic.loss", Kind::kPlace},
    {"discovery.guard", Kind::kPlace}, {"discovery.spawn", Kind::kReturn}, {"discovery.ended", Kind::kPlace},
    {"discovery.listed", Kind::kPlace},
    // Its agents.
    {"agent.frame", Kind::kReturn}, {"agent.send", Kind::kPlace}, {"agent.ended", Kind::kPlace},
    {"agent.swept", Kind::kPlace}, {"agent.launch", Kind::kReturn}, {"agent.probed", Kind::kPlace},
    {"agent.begin", Kind::kPlace}, {"agent.guard", Kind::kPlace}, {"agent.sweep", Kind::kPlace},
    {"slot.secret", Kind::kPlace}, {"slot.socket", Kind::kReturn}, {"slot.start", Kind::kReturn},
    {"relay.open", Kind::kReturn}, {"relay.pass", Kind::kReturn}, {"relay.up", Kind::kPlace}, {"relay.gone", Kind::kPlace},
    // Hosts that call in.
    {"gather.listen", Kind::kReturn}, {"gather.accept", Kind::kCall}, {"gather.asked", Kind::kPlace},
    {"call.connect", Kind::kReturn}, {"call.agent", Kind::kReturn}, {"seal.start", Kind::kReturn},
    {"seal.received", Kind::kPlace},
});
// clang-format on

// Those before are in ranks and rendezvous, and have a sweep over sessions; those from here on one over real jobs.
inline constexpr std::string_view kFirstOfLauncher = "child.spawn";

// Index in kTable. A name that is not there, or is of another kind, does not compile.
consteval std::size_t index_of(std::string_view name, Kind kind) {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].name == name && kTable[i].kind == kind) return i;
  }
  throw "no failpoint of this name and kind in kTable";
}

void pass(std::size_t point);
Status fail(std::size_t point);
// True, with errno set, when the call is not to be made.
bool fails(std::size_t point);
bool cuts(std::size_t point, std::size_t& size);
// How often a place was passed since arm(), while anything is armed.
std::uint64_t passages(std::string_view name);

}  // namespace hvd::failpoint

#define HVD_FAILPOINT_INDEX(name, kind) ::hvd::failpoint::index_of(name, ::hvd::failpoint::Kind::kind)
#define HVD_FAILPOINT(name) ::hvd::failpoint::pass(HVD_FAILPOINT_INDEX(name, kPlace))
#define HVD_FAILPOINT_RETURN(name) HVD_RETURN_IF_ERROR(::hvd::failpoint::fail(HVD_FAILPOINT_INDEX(name, kReturn)))
#define HVD_FAILPOINT_CALL(name, call) (::hvd::failpoint::fails(HVD_FAILPOINT_INDEX(name, kCall)) ? -1 : (call))
#define HVD_FAILPOINT_IO(name, size, call) (::hvd::failpoint::cuts(HVD_FAILPOINT_INDEX(name, kIo), size) ? -1 : (call))

#else

#define HVD_FAILPOINT(name) static_cast<void>(0)
#define HVD_FAILPOINT_RETURN(name) static_cast<void>(0)
#define HVD_FAILPOINT_CALL(name, call) (call)
#define HVD_FAILPOINT_IO(name, size, call) (call)

#endif
