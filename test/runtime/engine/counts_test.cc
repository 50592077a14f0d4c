// What a repeated allreduce costs, in what can be counted: allocations, messages, bytes copied, sleepers woken up.
// Times vary with the machine; these do not, so what makes a call dearer fails here. Polls and sleeps follow the
// scheduler and are not counted; of wake-ups, which come where somebody sleeps, there is a most.
//
// The linker leads this program's own calls (not those inside libgloo or libc) to the functions named __wrap_* here.
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdarg>
#include <cstdlib>
#include <latch>
#include <new>

#include "runtime/engine/operation_table.h"
#include "test/runtime/engine/session_support.h"
#include "test/support/job_fixture.h"

namespace {

std::atomic<std::int64_t> allocations{0};
std::atomic<std::int64_t> bytes_copied{0};  // in memory, by calls: small constant ones are inlined
std::atomic<std::int64_t> writes{0};        // to sockets
std::atomic<std::int64_t> bytes_sent{0};
std::atomic<std::int64_t> reads{0};  // from sockets, that give something
std::atomic<std::int64_t> wakes{0};  // of sleepers on futexes, of ours

void count(std::atomic<std::int64_t>& counter, std::int64_t n = 1) { counter.fetch_add(n, std::memory_order_relaxed); }

}  // namespace

void* operator new(std::size_t size) {
  count(allocations);
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

// NOLINTBEGIN(bugprone-reserved-identifier): the linker gives these names (--wrap)
extern "C" {
void* __real_memcpy(void* to, const void* from, std::size_t size);
void* __real_memmove(void* to, const void* from, std::size_t size);
ssize_t __real_sendmsg(int socket, const msghdr* message, int flags);
ssize_t __real_readv(int socket, const iovec* parts, int count);
long __real_syscall(long number, ...);

void* __wrap_memcpy(void* to, const void* from, std::size_t size) {
  count(bytes_copied, static_cast<std::int64_t>(size));
  return __real_memcpy(to, from, size);
}
void* __wrap_memmove(void* to, const void* from, std::size_t size) {
  count(bytes_copied, static_cast<std::int64_t>(size));
  return __real_memmove(to, from, size);
}
// Control and data connections alike write and read with these (transport/net/stream.h).
ssize_t __wrap_sendmsg(int socket, const msghdr* message, int flags) {
  const ssize_t sent = __real_sendmsg(socket, message, flags);
  if (sent > 0) count(writes);
  if (sent > 0) count(bytes_sent, sent);
  return sent;
}
ssize_t __wrap_readv(int socket, const iovec* parts, int parts_count) {
  const ssize_t size = __real_readv(socket, parts, parts_count);
  if (size > 0) count(reads);
  return size;
}
// Bells in shared memory and events of a process (base/futex.h); no call has more than six arguments.
long __wrap_syscall(long number, ...) {
  std::va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex && (static_cast<int>(arguments[1]) & FUTEX_CMD_MASK) == FUTEX_WAKE) count(wakes);
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
}
// NOLINTEND(bugprone-reserved-identifier)

namespace hvd::test {
namespace {

constexpr int kRanks = 2;
constexpr int kWarmUp = 40;
constexpr int kCalls = 200;

// Of one call on one rank.
struct Counts {
  double allocations;
  double copied;
  double writes;
  double sent;
  double reads;
  double wakes;
};

Counts now() {
  return {static_cast<double>(allocations), static_cast<double>(bytes_copied), static_cast<double>(writes),
          static_cast<double>(bytes_sent),  static_cast<double>(reads),        static_cast<double>(wakes)};
}

Counts measure(std::size_t elements, bool shared_memory, bool is_awaited) {
  JobFixture job(kRanks);
  Problems problems;
  Counts before{};
  Counts after{};
  std::latch warm(kRanks);
  std::latch begun(kRanks);
  std::latch ended(kRanks);
  std::latch read(kRanks);
  job.run(
      [&](Session& session) {
        std::vector<float> data(elements, 1.0F);
        std::vector<Operation> operations;
        for (int i = 0; i < kWarmUp + kCalls; ++i) {
          operations.push_back(allreduce("gradient", data));
          operations.back().is_awaited = is_awaited;
        }
        const auto run = [&](int begin, int end) {
          for (int i = begin; i < end; ++i) {
            problems.expect_ok(wait(session.enqueue(std::move(operations[static_cast<std::size_t>(i)]))), "allreduce");
          }
        };
        run(0, kWarmUp);
        warm.arrive_and_wait();
        if (session.topology().rank == 0) before = now();
        begun.arrive_and_wait();
        run(kWarmUp, kWarmUp + kCalls);
        ended.arrive_and_wait();
        if (session.topology().rank == 0) after = now();
        read.arrive_and_wait();  // nobody ends its session before
      },
      [&](config::RuntimeConfig& config) { config.shared_memory = shared_memory; });
  for (const std::string& error : job.errors()) CHECK(error == "");
  CHECK(problems.text() == "");
  constexpr double kAll = kRanks * kCalls;
  return {(after.allocations - before.allocations) / kAll,
          (after.copied - before.copied) / kAll,
          (after.writes - before.writes) / kAll,
          (after.sent - before.sent) / kAll,
          (after.reads - before.reads) / kAll,
          (after.wakes - before.wakes) / kAll};
}

}  // namespace

// Framing, headers and what the control plane copies do not grow with the tensor. How many pieces a socket takes a
// large message in is the kernel's affair, so that writes are counted for small ones only.
struct Most {
  const char* name;
  std::size_t elements;
  bool shared_memory = false;
  bool is_awaited = false;
  bool is_exchanged = false;  // there, without a message
  double allocations = 0;
  double copied = 0;
  double writes = 0;
  double sent = 0;
  double reads = 0;
  double wakes = 0;  // by this program's own calls: bells and events, not condition variables
};
constexpr double kMiB = 1048576;
// On one rank a report, on the other a decision: one control message a call, which comes in one read. Where callers
// exchange, one of the two at most sleeps until the other has come. Else the thread that waits is woken up once; and in
// shared memory the other member of each of the four chunks at most by three marks (docs/design/shared-memory.md).
constexpr double kOfTwo = 0.6;
constexpr double kHandle = 1.1;
constexpr double kMarks = 3 * 4;
constexpr Most kMost[] = {
    {.name = "4 B in shared memory",
     .elements = 1,
     .shared_memory = true,
     .is_exchanged = true,
     .allocations = 5,
     .copied = 90,
     .wakes = kOfTwo},
    // All of it is lent, and reduced straight into the output.
    {.name = "1 MiB in shared memory, waited for at once",
     .elements = 262144,
     .shared_memory = true,
     .is_awaited = true,
     .is_exchanged = true,
     .allocations = 5.5,
     .copied = kMiB + 90,
     .wakes = kOfTwo},
    // A half is staged, a half is reduced and copied to the output, a half is taken from the other.
    {.name = "1 MiB in shared memory",
     .elements = 262144,
     .shared_memory = true,
     .allocations = 61,
     .copied = 1.5 * kMiB + 700,
     .writes = 1.1,
     .sent = 100,
     .reads = 1.1,
     .wakes = kHandle + kMarks},
    {.name = "4 B over TCP",
     .elements = 1,
     .allocations = 36,
     .copied = 550,
     .writes = 1.1,
     .sent = 100,
     .reads = 1.1,
     .wakes = kHandle},
    // Payload is copied by the kernel alone, but for what comes in one read with a header. Sent are also, for each of
    // the four messages, its credit, its beginning and its piece's header.
    {.name = "1 MiB over TCP",
     .elements = 262144,
     .allocations = 130,
     .copied = 0.07 * kMiB,
     .writes = 41,
     .sent = 1.0006 * kMiB + 100,
     .reads = 41,
     .wakes = kHandle},
};

TEST_CASE("What a repeated allreduce allocates, copies and sends is bounded", "[multi][engine]") {
  for (const Most& most : kMost) {
    const Counts each = measure(most.elements, most.shared_memory, most.is_awaited);
    INFO(most.name << ", a call on a rank: " << each.allocations << " allocations, " << each.copied << " bytes copied, "
                   << each.writes << " writes of " << each.sent << " bytes, " << each.reads << " reads, " << each.wakes
                   << " wake-ups");
    CHECK(each.allocations <= most.allocations);
    CHECK(each.copied <= most.copied);
    CHECK(each.writes <= most.writes);
    CHECK(each.sent <= most.sent);
    CHECK(each.reads <= most.reads);
    CHECK(each.wakes <= most.wakes);
    // The hooks are in the way of what they count, and the bounds are not left behind by what became cheaper.
    CHECK(each.allocations >= 0.5 * most.allocations);
    CHECK(each.copied >= 0.5 * most.copied);
    if (most.is_exchanged) continue;
    CHECK(each.writes >= 0.9);
    CHECK(each.reads >= 0.9);
    CHECK(each.sent >= (most.shared_memory ? 4.0 : 4.0 * static_cast<double>(most.elements)));
  }
}

// Where one thread allocates what another frees, that costs more than all else of a submission.
TEST_CASE("What submitting a group allocates for each member is bounded", "[engine]") {
  constexpr std::size_t kMembers = 1000;
  recorder::FlightRecorder recorder;
  engine::OperationTable table(0, topology::initial_sets(2), recorder);
  std::vector<float> data(1, 1.0F);
  const auto group = [&] {
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < kMembers; ++i) {
      operations.push_back(allreduce("a name that is no part of its string object." + std::to_string(i), data));
    }
    return operations;
  };
  const auto submit = [&] {
    std::vector<Operation> operations = group();
    const std::int64_t before = allocations;
    const auto handles = table.add_group(std::move(operations));
    const double each = static_cast<double>(allocations - before) / kMembers;
    REQUIRE(handles.is_ok());
    for (const auto& own : table.fetch()) table.complete(own.operation, Status::ok());
    return each;
  };
  submit();
  const double each = submit();
  INFO(each << " allocations for each member");
  CHECK(each <= 3.1);  // the negotiation's copies of name and shape, and the key's of the name
  CHECK(each >= 1.5);
}

}  // namespace hvd::test
