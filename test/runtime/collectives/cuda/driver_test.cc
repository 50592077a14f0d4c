#include "runtime/collectives/cuda/driver.h"

#include <catch2/catch.hpp>

#include "runtime/base/event.h"
#include "runtime/collectives/cuda/devices.h"
#include "runtime/collectives/cuda/stream.h"
#include "test/support/fake_gpu/fake_driver.h"

namespace hvd::collectives::cuda {

namespace {

std::string why_no_driver(const std::string& file) {
  const auto driver = Driver::load(file);
  return driver.is_ok() ? "" : driver.status().to_string();
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("A driver that is missing, too old, incomplete or without a GPU is a reason in words", "[unit][gpu]") {
  CHECK(has(why_no_driver("libno_such_driver.so.1"), "there is no CUDA driver: libno_such_driver.so.1: cannot open"));
  CHECK(has(why_no_driver("libm.so.6"), "the CUDA driver in libm.so.6 has no function cuInit (CUDA 2.0)"));
  fake_cuda_set_version(10020);
  CHECK(has(why_no_driver(HVD_FAKE_CUDA), "of version 10.2, expected 11.0 or later"));
  fake_cuda_set_version(13000);
  fake_cuda_set_devices(0);
  CHECK(has(why_no_driver(HVD_FAKE_CUDA), "the CUDA driver finds no GPU"));
  fake_cuda_set_devices(4);
  fake_cuda_fail("cuInit", 0, 100);
  CHECK(has(why_no_driver(HVD_FAKE_CUDA),
            "does not start: cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)"));
  CHECK(why_no_driver(HVD_FAKE_CUDA) == "");
}

TEST_CASE("An error of any call on the way to a GPU leaves nothing behind", "[unit][gpu]") {
  const auto driver = Driver::load(HVD_FAKE_CUDA).value();
  for (const char* call : {"cuDeviceGet", "cuDeviceGetUuid_v2", "cuDevicePrimaryCtxRetain"}) {
    fake_cuda_fail(call, 0, 999);
    const auto device = Device::open(driver, 1);
    REQUIRE_FALSE(device.is_ok());
    const std::string name = std::string(call).substr(0, std::string(call).find("_v2"));
    CHECK(has(device.status().message(), "GPU 1: " + name + ": error 999"));
    CHECK(fake_cuda_alive("context") == 0);
    CHECK(fake_cuda_alive("stream") == 0);
  }
  const auto none = Device::open(driver, 4);
  CHECK(none.status().message() == "there is no GPU 4; this process sees 4");
  const auto device = Device::open(driver, 1).value();
  for (const char* call : {"cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority"}) {
    fake_cuda_fail(call, 0, 999);
    CHECK(has(Stream::make(device).status().message(), std::string(call) + ": error 999"));
    CHECK(fake_cuda_alive("stream") == 0);
  }
  const auto stream = Stream::make(device).value();
  for (const char* call : {"cuEventCreate", "cuEventRecord"}) {
    fake_cuda_fail(call, 0, 999);
    CHECK_FALSE(stream->record().is_ok());
  }
  fake_cuda_fail("cuMemAlloc_v2", 0, 2);
  CHECK(device->allocate(100).status().message() == "cuMemAlloc of 100 bytes: CUDA_ERROR_OUT_OF_MEMORY");
  // Memory that grows doubles, and stays as it is where the GPU has less.
  CHECK(stream->scratch(100).is_ok());
  fake_cuda_fail("cuMemAlloc_v2", 0, 2);
  CHECK(stream->scratch(101).is_ok());
  fake_cuda_fail("cuMemAlloc_v2", 0, 2);
  CHECK(stream->scratch(203).status().message() == "cuMemAlloc of 203 bytes: CUDA_ERROR_OUT_OF_MEMORY");
  CHECK(std::string(fake_cuda_breaches()) == "");
}

TEST_CASE("Scopes of one GPU within each other open its context once, of several each its own", "[unit][gpu]") {
  {
    const auto driver = Driver::load(HVD_FAKE_CUDA).value();
    const auto one = Device::open(driver, 0).value();
    const auto same = Device::open(driver, 0).value();
    const auto other = Device::open(driver, 1).value();
    const auto opened = [before = fake_cuda_calls("cuCtxPushCurrent_v2")] {
      return fake_cuda_calls("cuCtxPushCurrent_v2") - before;
    };
    std::uint64_t memory = 0;
    {
      const Device::Scope outer(*one);
      const Device::Scope inner(*same);
      CHECK(one->allocate(8).is_ok());
      CHECK(opened() == 1);
      {
        const Device::Scope within(*other);
        CHECK(opened() == 2);
        const Device::Scope again(*one);
        CHECK(opened() == 3);
      }
      CHECK(other->check_memory(one->allocate(8).value().get()).message().find("got memory of GPU 0") !=
            std::string::npos);
      CHECK(opened() == 4);
      CHECK(driver->calls().allocate(&memory, 8) == kSuccess);  // the outer one is in force again
    }
    CHECK(same->check_memory(reinterpret_cast<void*>(memory)).is_ok());
    CHECK(opened() == 5);
    {
      const Device::Scope scope(*same);
      CHECK(driver->calls().free(memory) == kSuccess);
    }
    const Device::Scope outer(*other);
    {
      fake_cuda_fail("cuCtxPushCurrent_v2", 0, 709);
      const Device::Scope not_opened(*one);
    }
    CHECK(driver->calls().allocate(&memory, 8) == kSuccess);  // what was not opened is not closed
    CHECK(other->check_memory(reinterpret_cast<void*>(memory)).is_ok());
    CHECK(driver->calls().free(memory) == kSuccess);
  }
  CHECK(std::string(fake_cuda_breaches()) == "");
}

TEST_CASE("Events are used again, memory is known by its GPU, and what waits hears of errors", "[unit][gpu]") {
  {
    Devices devices(HVD_FAKE_CUDA);
    const auto device = devices.get(0).value();
    const auto stream = Stream::make(device).value();
    const int made = fake_cuda_calls("cuEventCreate");
    for (int i = 0; i < 50; ++i) CHECK(stream->record().is_ok());
    CHECK(fake_cuda_calls("cuEventCreate") <= made + 1);
    const auto memory = device->allocate(64).value();
    CHECK(device->check_memory(memory.get()).is_ok());
    CHECK(has(devices.get(1).value()->check_memory(memory.get()).message(),
              "expected memory of GPU 1, got memory of GPU 0"));
    int on_the_stack = 0;
    CHECK(has(device->check_memory(&on_the_stack).message(), "a pointer that no GPU knows"));

    const auto wait = [&](const EventPtr& event, const std::function<void(hvd::Event&)>& meanwhile) {
      hvd::Event ended;
      Status status;
      devices.watch().watch(&devices, {.event = event, .done = [&](Status how) {
                                         status = std::move(how);
                                         ended.set();
                                       }});
      meanwhile(ended);
      ended.wait();
      return status;
    };
    fake_cuda_hold(stream->handle());
    const auto held = stream->record().value();
    CHECK(wait(held, [&](hvd::Event& ended) {
            CHECK_FALSE(ended.wait_for(Millis(2)));
            fake_cuda_release(stream->handle());
          }).is_ok());
    fake_cuda_hold(stream->handle());
    const auto stuck = stream->record().value();
    fake_cuda_fail("cuEventQuery", 0, 700);
    CHECK(wait(stuck, [](hvd::Event&) {}).message() == "GPU 0 reports: error 700");
    const Status failed =
        wait(stuck, [&](hvd::Event&) { devices.watch().fail(&devices, Status::peer_lost("rank 3")); });
    CHECK(failed.message() == "rank 3");
    fake_cuda_release(stream->handle());
  }
  CHECK(fake_cuda_alive("context") == 0);
  CHECK(fake_cuda_alive("stream") == 0);
  CHECK(fake_cuda_alive("event") == 0);
  CHECK(fake_cuda_alive("memory") == 0);
  CHECK(std::string(fake_cuda_breaches()) == "");
}

}  // namespace hvd::collectives::cuda
