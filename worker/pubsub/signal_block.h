// Keeps signals from a thread that is being started: a thread inherits the mask.
#ifndef POSTBOX_WORKER_PUBSUB_SIGNAL_BLOCK_H_
#define POSTBOX_WORKER_PUBSUB_SIGNAL_BLOCK_H_

#include <pthread.h>
#include <signal.h>

namespace postbox::pubsub {

// Blocks every signal in this thread while it lives.
class ScopedSignalBlock {
 public:
  ScopedSignalBlock() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~ScopedSignalBlock() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  ScopedSignalBlock(const ScopedSignalBlock&) = delete;
  ScopedSignalBlock& operator=(const ScopedSignalBlock&) = delete;

 private:
  sigset_t saved_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_SIGNAL_BLOCK_H_
