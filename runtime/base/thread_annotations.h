#pragma once

// Clang's thread-safety attributes: which mutex guards which field. Empty for other compilers.
#if defined(__clang__)
#define HVD_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define HVD_THREAD_ATTRIBUTE(x)
#endif

#define HVD_GUARDED_BY(x) HVD_THREAD_ATTRIBUTE(guarded_by(x))
#define HVD_REQUIRES(...) HVD_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define HVD_EXCLUDES(...) HVD_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
