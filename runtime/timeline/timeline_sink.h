#pragma once

#include <string>
#include <string_view>

#include "horovod/types.h"

namespace hvd::timeline {

// Where the engine reports what happens to each tensor. Called on hvd-engine and on the lanes; implementations are
// thread-safe and never block. The Chrome-trace writer comes behind this interface; until then the null sink stands.
class TimelineSink {
 public:
  virtual ~TimelineSink() = default;
  virtual bool enabled() const = 0;  // callers skip building names when off
  virtual void negotiate_start(std::string_view tensor, OpType op) = 0;
  virtual void negotiate_rank_ready(std::string_view tensor, int rank) = 0;
  virtual void negotiate_end(std::string_view tensor) = 0;
  virtual void activity_start(std::string_view tensor, std::string_view activity) = 0;
  virtual void activity_end(std::string_view tensor) = 0;
};

class NullTimelineSink final : public TimelineSink {
 public:
  bool enabled() const override { return false; }
  void negotiate_start(std::string_view, OpType) override {}
  void negotiate_rank_ready(std::string_view, int) override {}
  void negotiate_end(std::string_view) override {}
  void activity_start(std::string_view, std::string_view) override {}
  void activity_end(std::string_view) override {}
};

}  // namespace hvd::timeline
