#include "runtime/base/status.h"

#include <cerrno>

#include <catch2/catch.hpp>

using namespace hvd;

namespace {
Result<int> half(int x) {
  if (x % 2 != 0) return Status::invalid_argument("odd: " + std::to_string(x));
  return x / 2;
}
Status quarter(int x, int* out) {
  HVD_ASSIGN_OR_RETURN(const int h, half(x));
  HVD_ASSIGN_OR_RETURN(*out, half(h));
  return Status::ok();
}
}  // namespace

TEST_CASE("HVD_ASSIGN_OR_RETURN passes values on and stops at the first error", "[unit][base]") {
  int out = 0;
  CHECK(quarter(12, &out).is_ok());
  CHECK(out == 3);
  CHECK(quarter(6, &out).message() == "odd: 3");
  CHECK(out == 3);
}

TEST_CASE("Status::annotate puts context before the message and keeps the code", "[unit][base]") {
  const Status s = Status::peer_lost("rank 3").annotate("allreduce g0");
  CHECK(s.code() == StatusCode::kPeerLost);
  CHECK(s.to_string() == "peer lost: allreduce g0: rank 3");
  CHECK(Status::ok().annotate("x").is_ok());
}

TEST_CASE("Status::from_errno names the errno in words", "[unit][base]") {
  CHECK(Status::from_errno("open f", ENOENT).message() == "open f: No such file or directory");
  const std::string full = Status::from_errno("accept", EMFILE).message();
  CHECK(full.find("accept: Too many open files (this process may open ") == 0);
  CHECK(full.find("`ulimit -n` raises that up to ") != std::string::npos);
}
