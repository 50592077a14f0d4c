#include <catch2/catch.hpp>

#include "runtime/recorder/flight_recorder.h"

using hvd::recorder::FlightRecorder;

TEST_CASE("Without a profiler operations are no ranges, asked for or not", "[unit][recorder]") {
  CHECK_FALSE(FlightRecorder().ranges().is_active());
  CHECK_FALSE(FlightRecorder(true).ranges().is_active());
}
