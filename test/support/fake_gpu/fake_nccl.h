#pragma once

#include "test/support/fake_gpu/fake_driver.h"

// What the tests ask of the fake NCCL besides NCCL's own functions. Its ranks are threads or processes of one host, its
// communicators non-blocking; collectives run in the streams of the fake driver and wait there for all members. It is
// strict: whatever NCCL leaves undefined is written down.
// The `after`+1st call from now on of NCCL's function `name` fails with `code`, once; 0: none does any more.
HVD_FAKE void fake_nccl_fail(const char* name, int after, int code);
// The `after`+1st communicator from now on fails with `code` when it is asked how it goes; its other members wait.
HVD_FAKE void fake_nccl_fail_late(int after, int code);
// What ncclGetLastError says, null: its usual words.
HVD_FAKE void fake_nccl_set_last_error(const char* text);
HVD_FAKE void fake_nccl_set_version(int version);
// Things that live: "communicator", "reduction", "memory", "registration", "window".
HVD_FAKE int fake_nccl_alive(const char* kind);
HVD_FAKE int fake_nccl_calls(const char* name);
HVD_FAKE const char* fake_nccl_breaches();
HVD_FAKE void fake_nccl_forget_breaches();
// GPUs that do not reach each other's memory: no windows, and no error.
HVD_FAKE void fake_nccl_set_windows(int has_windows);
// So many collectives run beside each other on a GPU; more wait there for one to end. 0: as many as there are.
HVD_FAKE void fake_nccl_set_room(int collectives);
// Of these, how many run on a GPU now.
HVD_FAKE int fake_nccl_running(int device);
// Every communicator reports it from now on; 0: none does.
HVD_FAKE void fake_nccl_set_async_error(int code);
// While it is held, a member on this GPU comes into no communicator: its call to join one does not come back. -1: none.
HVD_FAKE void fake_nccl_hold_joins(int device);
// Of these, how many have been called and have not come back.
HVD_FAKE int fake_nccl_held_joins();
// While they are late, what a call starts does not come into the stream while the caller asks how it goes: as where
// NCCL still connects the members, on a thread of its own. That thread ends with ncclCommAbort, and puts it in before;
// there it writes anything.
HVD_FAKE void fake_nccl_set_launches_late(int are_late);
// Of these, how many wait for it.
HVD_FAKE int fake_nccl_late_launches();
// While they are held, ncclCommAbort does not come back, and ends nothing.
HVD_FAKE void fake_nccl_hold_aborts(int are_held);
// Of these, how many have been called and have not come back.
HVD_FAKE int fake_nccl_held_aborts();
// The memory of NCCL that the product has left for good; fake_cuda_forget() takes it back.
HVD_FAKE void fake_nccl_forget();
