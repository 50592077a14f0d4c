/* Preloaded into a rank: counts the bytes of large copies that any library of the process makes with memcpy or memmove.
 * Only sizes in [lowest, highest] are counted, which count_between() sets, so that the test's own tensors stand out. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

typedef void *(*copy_fn)(void *, const void *, size_t);

static _Atomic size_t lowest = (size_t)-1, highest, copies, bytes;
static _Atomic(copy_fn) real_memmove;

void count_between(size_t low, size_t high) {
  copies = bytes = 0;
  lowest = low;
  highest = high;
}
size_t counted_copies(void) { return copies; }
size_t counted_bytes(void) { return bytes; }

__attribute__((constructor)) static void find(void) { real_memmove = (copy_fn)dlsym(RTLD_NEXT, "memmove"); }

static void *copy(void *to, const void *from, size_t n) {
  if (n >= lowest && n <= highest) {
    copies++;
    bytes += n;
  }
  copy_fn real = real_memmove;
  if (real != NULL) return real(to, from, n);
  volatile char *out = to; /* before the constructor ran; volatile, so that this does not become a memcpy */
  const volatile char *in = from;
  while (n-- > 0) *out++ = *in++;
  return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) { return copy(to, from, n); }
void *memmove(void *to, const void *from, size_t n) { return copy(to, from, n); }
void *__memcpy_chk(void *restrict to, const void *restrict from, size_t n, size_t room) {
  (void)room;
  return copy(to, from, n);
}
