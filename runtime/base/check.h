#pragma once

#include <cstdio>
#include <cstdlib>

// HVD_CHECK guards against our own bugs: it prints where and what, then aborts. User and peer input is never checked
// with it; that becomes a Status.
#define HVD_CHECK(condition, message)                                                                 \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      std::fprintf(stderr, "%s:%d: check failed: %s: %s\n", __FILE__, __LINE__, #condition, message); \
      std::abort();                                                                                   \
    }                                                                                                 \
  } while (false)

// The same where it costs too much in a release: on in the presets dev, asan, tsan and coverage.
#ifdef NDEBUG
#define HVD_DCHECK(condition, message)                          \
  do {                                                          \
    if (false) static_cast<void>(static_cast<bool>(condition)); \
  } while (false)
#else
#define HVD_DCHECK(condition, message) HVD_CHECK(condition, message)
#endif
