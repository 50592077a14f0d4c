// Memory that whoever touches it first has to wait for: until slow_page_release(), or for 20 s.
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char* begin;
static size_t size;
static struct sigaction before;
static atomic_int toucher, is_released, was_in_time;

static void on_fault(int number, siginfo_t* info, void* context) {
  (void)context;
  const char* const at = info->si_addr;
  if (at < begin || at >= begin + size) {
    sigaction(number, &before, NULL);  // and it faults again
    return;
  }
  const struct timespec pause = {0, 1000000};
  atomic_store(&toucher, (int)syscall(SYS_gettid));
  for (int i = 0; i < 20000 && !atomic_load(&is_released); ++i) nanosleep(&pause, NULL);
  atomic_store(&was_in_time, atomic_load(&is_released));
  mprotect(begin, size, PROT_READ | PROT_WRITE);
}

int slow_page_begin(void* address, size_t bytes) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  begin = address;
  size = bytes;
  return sigaction(SIGSEGV, &action, &before) | mprotect(begin, size, PROT_NONE);
}

// The thread that has touched it; 0: none has.
int slow_page_toucher(void) { return atomic_load(&toucher); }

void slow_page_release(void) { atomic_store(&is_released, 1); }

// Whether the wait ended with the release.
int slow_page_end(void) {
  sigaction(SIGSEGV, &before, NULL);
  return atomic_load(&was_in_time);
}
