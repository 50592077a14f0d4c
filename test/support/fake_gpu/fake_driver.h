#pragma once

#include <cstddef>

// What the tests ask of the fake CUDA driver besides the driver's own functions. It has four GPUs, whose memory is the
// host's; each stream is a thread, so that nothing has run just because it was called. It is strict: whatever a real
// driver would punish is written down.
#define HVD_FAKE extern "C" __attribute__((visibility("default")))

// The `after`+1st call from now on of the driver's function `name` fails with `code`, once.
HVD_FAKE void fake_cuda_fail(const char* name, int after, int code);
// The same for that call and `times` - 1 after it; 0: none fails any more.
HVD_FAKE void fake_cuda_fail_times(const char* name, int after, int code, int times);
HVD_FAKE void fake_cuda_set_version(int version);
// Of all GPUs; 90 is 9.0.
HVD_FAKE void fake_cuda_set_capability(int capability);
HVD_FAKE int fake_cuda_capability();
HVD_FAKE void fake_cuda_set_devices(int count);
// All GPUs are slices (MIG) of one, which is what has a place on the bus.
HVD_FAKE void fake_cuda_set_slices(int are_slices);
// The number on the PCI bus of a GPU, or of the one that it is a slice of.
HVD_FAKE int fake_cuda_bus(int device);
// Objects that live: "context" (times retained), "stream", "event", "memory", "pinned", "module".
HVD_FAKE int fake_cuda_alive(const char* kind);
// Calls of a function of the driver so far.
HVD_FAKE int fake_cuda_calls(const char* name);
// What was wrong so far, a line each; empty when nothing was. Valid until the next call of this.
HVD_FAKE const char* fake_cuda_breaches();

// A framework's stream and memory on a GPU.
HVD_FAKE void* fake_cuda_stream(int device);
HVD_FAKE void fake_cuda_end_stream(void* stream);
HVD_FAKE void* fake_cuda_memory(int device, std::size_t bytes);
// Of memory that the product asks for on a GPU, or on all: for a larger piece there is no room.
HVD_FAKE void fake_cuda_set_largest(std::size_t bytes, int device = -1);
// Memory in pages, as NCCL takes it, and its end, which waits for nothing.
HVD_FAKE void* fake_cuda_pages(int device, std::size_t bytes);
HVD_FAKE int fake_cuda_unmap(void* memory);
HVD_FAKE void fake_cuda_free(int device, void* memory);
// As a caching allocator does: after what is in the stream now, whatever other streams still have to do with it.
HVD_FAKE void fake_cuda_free_in(void* stream, void* memory);
// The stream runs nothing from its next piece of work on, until it is released.
HVD_FAKE void fake_cuda_hold(void* stream);
HVD_FAKE void fake_cuda_release(void* stream);
HVD_FAKE void fake_cuda_set_capturing(void* stream, int capturing);
// Puts work into a stream; `run` is called on its thread.
HVD_FAKE int fake_cuda_enqueue(void* stream, void (*run)(void*), void* argument);
HVD_FAKE void fake_cuda_synchronize(void* stream);
// Whether these bytes are within live memory of `device`.
HVD_FAKE int fake_cuda_owns(int device, const void* memory, std::size_t bytes);
HVD_FAKE int fake_cuda_device_of(void* stream);
// Waits until all streams have run, and puts in new GPUs, of other UUIDs: after a test in which the product leaves
// something for good.
HVD_FAKE void fake_cuda_forget();
// The GPU whose context is current on this thread; -1: none.
HVD_FAKE int fake_cuda_current();
