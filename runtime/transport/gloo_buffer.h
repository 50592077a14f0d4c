#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <memory>
#include <span>
#include <vector>

#include "runtime/transport/data_plane.h"

namespace hvd::transport {

// The members of one Gloo context: its ranks are positions in `ranks`, ours are the global ranks there.
struct GlooGroup {
  std::shared_ptr<DataPlane> plane;
  std::shared_ptr<MessageContext> messages;
  std::vector<int> ranks;

  ~GlooGroup() { plane->remove_context(messages); }
  // Throws WaitError when there is no such member.
  int to_global(int member) const;
  int to_member(int global) const;
};

// A piece of memory that messages leave from and arrive in: Gloo's handle on our transport. Used by one lane at a time.
// Waits end by completion, by abort, or when the peer is lost; Gloo's time limits are ignored, because how long a
// collective may take is the user's business (docs/design/transport.md). Failures throw WaitError; nothing returns
// false.
class GlooBuffer final : public gloo::transport::UnboundBuffer {
 public:
  GlooBuffer(std::shared_ptr<GlooGroup> group, void* data, size_t bytes);
  // Takes back what is still pending, so that the memory may go.
  ~GlooBuffer() override;

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override;
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override;
  void abortWaitRecv() override;
  void abortWaitSend() override;

  void send(int to, uint64_t slot, size_t offset, size_t nbytes) override;
  void recv(int from, uint64_t slot, size_t offset, size_t nbytes) override;
  void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t nbytes) override;

 private:
  std::span<std::uint8_t> part(size_t offset, size_t nbytes) const;
  void throw_if_unusable() const;
  void post_recv(RecvOp op);
  void report(const Result<int>& taken, int* rank) const;

  std::shared_ptr<GlooGroup> group_;
  Completions completions_;
};

}  // namespace hvd::transport
