#include <catch2/catch.hpp>
#include <set>

#include "runtime/collectives/cuda/device.h"
#include "runtime/collectives/cuda/stream.h"
#include "test/runtime/collectives/cuda/gpu_sessions.h"

// Memory of results that were let go of, which the GPU may still use: nothing in the fake stops who uses it too early,
// so it is the addresses that tell.
namespace hvd::collectives::cuda {

namespace {

using Results = std::vector<std::shared_ptr<void>>;

Results results_on(Device& device, std::size_t count, std::size_t bytes) {
  Results results;
  for (std::size_t i = 0; i < count; ++i) results.push_back(device.allocate_result(bytes).value());
  return results;
}

std::set<void*> places_of(const Results& results) {
  std::set<void*> places;
  for (const auto& one : results) places.insert(one.get());
  return places;
}

std::shared_ptr<Device> device_on(int gpu) { return Device::open(Driver::load(HVD_FAKE_CUDA).value(), gpu).value(); }

}  // namespace

TEST_CASE("Memory of results is used again after the GPU was waited for, once for many of them", "[unit][gpu]") {
  {
    const auto device = device_on(0);
    const test::FrameworkStream reader(0);
    fake_cuda_hold(reader.get());
    CHECK(fake_cuda_enqueue(reader.get(), [](void*) {}, nullptr) == 0);
    Results results = results_on(*device, 64, 1000);
    const std::set<void*> first = places_of(results);
    const int frees = fake_cuda_calls("cuMemFree_v2");
    results.erase(results.begin() + 1, results.end());  // waits for nothing: the stream is held
    Results meanwhile = results_on(*device, 2, 1000);
    for (const auto& one : meanwhile) CHECK(!first.contains(one.get()));
    CHECK(fake_cuda_calls("cuMemFree_v2") == frees);

    fake_cuda_release(reader.get());
    results.clear();
    CHECK(fake_cuda_calls("cuMemFree_v2") == frees + 1);
    const int allocations = fake_cuda_calls("cuMemAlloc_v2");
    results = results_on(*device, 63, 513);  // as large as 1000 and 1024
    CHECK(fake_cuda_calls("cuMemAlloc_v2") == allocations);
    for (const auto& one : results) CHECK(first.contains(one.get()));
    CHECK(places_of(results).size() == 63);
    results.push_back(device->allocate_result(512).value());
    CHECK(fake_cuda_calls("cuMemAlloc_v2") == allocations + 1);
  }
  test::expect_nothing_left();
}

TEST_CASE("Large results go back to the driver soon, and all that are put aside where it has no memory",
          "[unit][gpu]") {
  {
    const auto device = device_on(0);
    const int frees = fake_cuda_calls("cuMemFree_v2");
    results_on(*device, 1, (std::size_t{16} << 20) + 1);
    CHECK(fake_cuda_calls("cuMemFree_v2") == frees + 1);
    results_on(*device, 4, std::size_t{16} << 20);
    CHECK(fake_cuda_calls("cuMemFree_v2") == frees + 2);
    results_on(*device, 3, 100);
    CHECK(fake_cuda_alive("memory") == 6);
    constexpr int kOutOfMemory = 2;
    fake_cuda_fail("cuMemAlloc_v2", 0, kOutOfMemory);
    const auto last = device->allocate_result(5000);
    CHECK(last.is_ok());
    CHECK(fake_cuda_alive("memory") == 1);
    fake_cuda_fail_times("cuMemAlloc_v2", 0, kOutOfMemory, 2);
    CHECK(device->allocate_result(100).status().message().find("cuMemAlloc of 512 bytes") != std::string::npos);
  }
  test::expect_nothing_left();
}

TEST_CASE("What is idle when the GPU is waited for again goes back", "[unit][gpu]") {
  {
    const auto device = device_on(0);
    results_on(*device, 64, 1000);
    CHECK(fake_cuda_alive("memory") == 63);
    results_on(*device, 64, 5000);
    CHECK(fake_cuda_alive("memory") == 63);
  }
  test::expect_nothing_left();
}

TEST_CASE("Memory of results is not used again while something that was given up may run", "[unit][gpu]") {
  {
    const auto device = device_on(0);
    const auto stream = Stream::make(device).value();
    fake_cuda_hold(stream->handle());
    const EventPtr never = stream->record().value();
    never->give_up();
    Results results = results_on(*device, 64, 1000);
    const std::set<void*> first = places_of(results);
    results.clear();  // would wait for good
    Results others = results_on(*device, 64, 1000);
    for (const auto& one : others) CHECK(!first.contains(one.get()));
    fake_cuda_release(stream->handle());
    fake_cuda_synchronize(stream->handle());
    others.clear();
    CHECK(fake_cuda_alive("memory") == 63);
  }
  test::expect_nothing_left();
}

}  // namespace hvd::collectives::cuda
