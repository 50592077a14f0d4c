#pragma once

#include <memory>
#include <string>

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace hvd::collectives {

// A Gloo context that wraps another one and can be aborted. Gloo's collectives ignore the `false` of an aborted wait and
// would go on with garbage; here every wait that did not complete throws gloo::IoException with the reason. abort() may
// come from any thread; the rest is used by the lane. Keeps the wrapped context alive.
class AbortableContext final : public gloo::Context {
 public:
  explicit AbortableContext(std::shared_ptr<gloo::Context> inner);
  ~AbortableContext() override;

  // Every present and future wait throws `why`, promptly. The first reason stays.
  void abort(const std::string& why);

 private:
  class Transport;
  std::shared_ptr<gloo::Context> inner_;
  std::shared_ptr<Transport> transport_;
};

}  // namespace hvd::collectives
