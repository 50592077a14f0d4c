#include "runtime/collectives/gloo/gloo_backend.h"

#include <dlfcn.h>

#include <utility>

#include <gloo/broadcast.h>
#include <gloo/common/error.h>

#include "runtime/base/failpoint.h"
#include "runtime/base/mutex.h"
#include "runtime/collectives/gloo/gloo_collectives.h"
#include "runtime/transport/data/gloo_context.h"

namespace hvd::collectives {
namespace {

// Gloo says what happened only in the text.
Status status_of(const gloo::IoException& e) {
  const std::string text = e.what();
  return text.find("Timed out") != std::string::npos ? Status::timeout(text) : Status::peer_lost(text);
}

}  // namespace

struct GlooBackend::Impl {
  Impl(GlooContextSource s, GlooBackendOptions o) : source(std::move(s)), options(o) {}

  Status run(const CollectiveCall& call);
  Status ensure_context();

  // Records the first failure and returns it; later ones are consequences.
  Status fail(Status why) HVD_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    if (failure.is_ok()) failure = std::move(why);
    return failure;
  }
  Status failed() HVD_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return failure;
  }

  const GlooContextSource source;
  const GlooBackendOptions options;

  std::unique_ptr<GlooCollectives> collectives;  // lane's thread only; from the first call on

  Mutex mutex;
  Status failure HVD_GUARDED_BY(mutex);
};

GlooBackend::GlooBackend(GlooContextSource source, GlooBackendOptions options)
    : impl_(std::make_unique<Impl>(std::move(source), options)) {}

GlooBackend::~GlooBackend() = default;

void GlooBackend::start(const CollectiveCall& call, Completion done) {
  Status taken = check(call);
  done(taken.is_ok() ? impl_->run(call) : std::move(taken));
}

void GlooBackend::abort(const Status& why) {
  const Status first = impl_->fail(why);  // before the rest: a context that is being made is not used then
  if (impl_->source.abort) impl_->source.abort(first);
}

PeerProgress GlooBackend::progress() const {
  return impl_->source.progress ? impl_->source.progress() : PeerProgress{};
}

Status GlooBackend::Impl::run(const CollectiveCall& call) {
  HVD_RETURN_IF_ERROR(failed());
  try {
    HVD_RETURN_IF_ERROR(ensure_context());
    HVD_FAILPOINT_RETURN("gloo.begin");
    collectives->run(call);
    HVD_FAILPOINT_RETURN("gloo.end");
    return Status::ok();
  } catch (const transport::WaitError& e) {  // of our own transport
    return fail(e.status().annotate(op_type_name(call.op)));
  } catch (const gloo::IoException& e) {
    return fail(status_of(e).annotate(op_type_name(call.op)));
  } catch (const std::exception& e) {
    return fail(Status::from_exception(e).annotate(op_type_name(call.op)));
  }
}

Status GlooBackend::Impl::ensure_context() {
  if (collectives) return Status::ok();
  Result<std::shared_ptr<gloo::Context>> made = source.make();
  if (!made.is_ok()) return fail(made.status());
  HVD_RETURN_IF_ERROR(failed());  // aborted while it was made
  collectives = std::make_unique<GlooCollectives>(std::move(made).value(), options, source.connect);
  return Status::ok();
}

std::string gloo_library() {
  using Broadcast = void (*)(gloo::BroadcastOptions&);
  const Broadcast symbol = &gloo::broadcast;
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(symbol), &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace hvd::collectives
