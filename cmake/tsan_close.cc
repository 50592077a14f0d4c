// Shows ThreadSanitizer that libuv closes a descriptor. Debian's libuv does so by a bare system call, which the
// sanitizer does not see: the next owner of the number then looks like a race with the former one. Only in the TSan
// build, where the linker leads every call of syscall() here (-Wl,--wrap=syscall).
#include <sys/syscall.h>
#include <unistd.h>

extern "C" {

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
  if (number == SYS_close) return close(static_cast<int>(a));
  return __real_syscall(number, a, b, c, d, e, f);
}

}  // extern "C"
