#include <pthread.h>

#include <cstdio>
#include <cstdlib>

// In a program of which hvd_add_test() is told ONE_THREAD, in place of the function that starts threads, and of its
// test.
int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
  std::fputs("this program starts a thread, so it is to run under ThreadSanitizer too: take ONE_THREAD off it\n",
             stderr);
  std::abort();
}
