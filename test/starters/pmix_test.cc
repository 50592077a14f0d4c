#include <dlfcn.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "runtime/base/fd.h"
#include "starters/meeting.h"
#include "starters/pmix_channel.h"

namespace hvd::starters {

TEST_CASE("A PMIx server that listens and says nothing holds nobody up for ever", "[multi][starters]") {
  // What is loaded under this name is what the channel gets.
  void* const library = dlopen(HVD_SILENT_PMIX, RTLD_NOW | RTLD_LOCAL);
  INFO((library == nullptr ? dlerror() : ""));
  REQUIRE(library != nullptr);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  Fd our_end(ends[1]);
  *static_cast<int*>(dlsym(library, "hvd_silent_pmix_fd")) = ends[0];  // open for as long as who was given up may read

  const Status late = PmixChannel::open_library(0, Deadline::after(Millis(50)), -1).status();
  CHECK(late.code() == StatusCode::kTimeout);
  CHECK_THAT(late.message(), Catch::Contains("does not answer PMIx_Init; HOROVOD_SHARED_DIR names a folder"));

  config::RuntimeConfig c;
  c.size = 2;
  c.started_by.emplace().program = "mpirun";
  c.started_by->speaks_pmix = true;
  std::stop_source stop;
  stop.request_stop();
  const Status aborted = Meeting::hold(c, stop.get_token()).status();
  CHECK(aborted.code() == StatusCode::kAborted);
  CHECK_THAT(aborted.message(), Catch::Contains("rank 0 of 2, which mpirun started"));

  our_end.reset();  // nobody listens any more: there is the folder, for which this job has no name
  CHECK(Meeting::hold(c, {}).status().code() == StatusCode::kPrecondition);
}

}  // namespace hvd::starters
