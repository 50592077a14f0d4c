#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/join/join_messages.h"
#include "launcher/process/byte_pipe.h"
#include "launcher/process/lease_watch.h"
#include "launcher/process/main_loop.h"
#include "runtime/base/fd.h"
#include "runtime/crypto/sealed_records.h"
#include "runtime/crypto/secret.h"

namespace hvd::launcher {

// The token of --token-file: of a file that only this user may read; or of an inherited descriptor, /dev/fd/N from 3
// on, which is closed then, so that no child has it. With a pipe there is no file that could outlive whoever was to
// remove it. Errors name the path.
Result<crypto::Secret> read_token(const std::string& path);

// A TCP connection between a launcher and a host that joins, whose both ends prove that they have the token before a
// record of theirs is believed; what passes can be neither read nor changed by others. It notices when the other host
// is gone without a word, by LeaseWatch. Loop-confined. Not to be destroyed inside a callback of its own.
class SealedLink {
 public:
  enum class Side { kLauncher, kHost };
  struct Callbacks {
    std::function<void()> on_proven;          // once: the other end has the token
    std::function<void(ByteSpan)> on_record;  // never an empty one: those are signs of life. Erased afterwards
    std::function<void(const std::string& why)> on_end;  // once: nothing more comes; not after close()
    std::function<void()> on_progress;                   // of what waits to be sent
    // Of a launcher's end, once: the greeting was made by a holder of the token, now or before.
    std::function<void()> on_introduced = {};
  };

  // Takes a connected socket, and greets.
  static Result<std::unique_ptr<SealedLink>> open(MainLoop& loop, Fd fd, Side side, const crypto::Secret& token,
                                                  Callbacks callbacks);

  // From now on these are called; `on_proven` no more. Requires: it is proven.
  void take_over(Callbacks callbacks) { callbacks_ = std::move(callbacks); }
  bool proven() const { return proven_; }
  // The other end has said what a horovodrun says first.
  bool greeted() const { return opener_.has_value(); }
  // What the other end has sealed was not sealed with a key of ours.
  bool has_other_token() const { return has_other_token_; }
  // Why it has ended; "" while it has not. Who took it over too late to be called asks here.
  const std::string& end() const { return end_; }

  // Requires: it is proven. In as many records as it takes.
  void write(ByteSpan bytes);
  std::size_t queued() const { return output_ ? output_->queued() : 0; }
  // While paused, the other end cannot send much more, and its end is not seen.
  void pause(bool paused) { paused ? input_->pause() : input_->resume(); }
  // What is queued is lost.
  void close();
  // Closes once what is queued has been taken, or when the other end is gone.
  void close_when_written();

 private:
  SealedLink(MainLoop& loop, Side side, const crypto::Secret& token, Callbacks callbacks);
  Status start(Fd fd);
  Status open_output();
  void greet();
  void introduce();
  void turn_away();
  void received(ByteSpan bytes);
  // Of the other end's greeting; false when there is more to come.
  bool take_greeting(ByteSpan bytes);
  void agree(ByteSpan nonce_of_other);
  void deliver();
  void written();
  void lose(const std::string& why);

  const Side side_;
  const crypto::Secret token_;
  Callbacks callbacks_;
  MainLoop& loop_;
  int socket_ = -1;  // of input_
  std::unique_ptr<PipeReader> input_;
  std::unique_ptr<PipeWriter> output_;  // a stranger has none: it would take another descriptor
  std::unique_ptr<LeaseWatch> watch_;
  Bytes own_nonce_;
  GreetingReader greeting_;  // of the other end
  std::optional<crypto::RecordSealer> sealer_;
  std::optional<crypto::RecordOpener> opener_;
  bool proven_ = false;
  bool has_other_token_ = false;
  bool closing_ = false;
  std::string end_;
};

}  // namespace hvd::launcher
