#pragma once

// What tests ask the fake profiler, from any thread. A range is a line: its domain, its message, its payload. The text
// is the calling thread's, until it asks again.
extern "C" {
// In the order of their ends, since it was last asked.
const char* fake_nvtx_take_ended();
// That have not ended, in the order in which they began.
const char* fake_nvtx_open();
// The names of those that are there.
const char* fake_nvtx_domains();
// What NVTX does not allow.
const char* fake_nvtx_breaches();
}
